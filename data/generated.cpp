#include "longhand/data/generated.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/core/parallel.h"

namespace longhand::data {
namespace {

enum class Split { train, validation, test };

class Generated : public Dataset {
 public:
  Generated(const Draw& draw, const Generator& generator, Split split, std::string_view name,
            int64_t size, int64_t length)
      : draw_(draw),
        examples_(generator.fork(name)),
        hashes_(generator.fork("split")),
        split_(split),
        size_(size),
        length_(length) {
    std::vector<int32_t> tokens(length_), targets(length_);
    example(0, tokens, targets);  // throws if the split has no examples
  }

  int64_t size() const override { return size_; }
  int64_t length(int64_t) const override { return length_; }

  Batch collate(std::span<const int64_t> indices) const override {
    const int64_t count = static_cast<int64_t>(indices.size());
    for (const int64_t i : indices)
      check<DataError>(i >= 0 && i < size_, "example ", i, " is out of range for a dataset of ",
                       size_, " examples");
    Batch batch{Tensor::empty({count, length_}, DType::i32),
                Tensor::empty({count, length_}, DType::i32), Tensor()};
    int32_t* const tokens = batch.tokens.data<int32_t>();
    int32_t* const targets = batch.targets.data<int32_t>();
    const size_t n = static_cast<size_t>(length_);
    parallel_for(count, 4, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        example(indices[b], {tokens + b * length_, n}, {targets + b * length_, n});
    });
    return batch;
  }

 private:
  void example(int64_t index, std::span<int32_t> tokens, std::span<int32_t> targets) const {
    // A split with a quarter of all examples is missed this many times with probability 1e-125.
    constexpr int tries = 1000;
    RandomStream random(examples_.fork(static_cast<uint64_t>(index)));
    for (int i = 0; i < tries; ++i) {
      draw_(random, tokens, targets);
      if (split_of(tokens) == split_) return;
    }
    throw ConfigError(
        "data: the task's options allow so few different examples that a split has none");
  }

  Split split_of(std::span<const int32_t> tokens) const {
    const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes());
    switch (hashes_.fork(bytes).bits(0) & 3) {
      case 0:
        return Split::validation;
      case 1:
        return Split::test;
      default:
        return Split::train;
    }
  }

  Draw draw_;
  Generator examples_, hashes_;
  Split split_;
  int64_t size_, length_;
};

}  // namespace

Task make_generated(const TaskInfo& info, const SplitSizes& sizes, uint64_t seed,
                    const Draw& draw) {
  const Generator generator(seed);
  const auto make = [&](Split split, std::string_view name, int64_t size) {
    return std::make_unique<Generated>(draw, generator, split, name, size, info.max_length);
  };
  return {info, make(Split::train, "train", sizes.train),
          make(Split::validation, "validation", sizes.validation),
          make(Split::test, "test", sizes.test)};
}

}  // namespace longhand::data

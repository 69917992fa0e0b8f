#include "longhand/data/in_memory.h"

#include <algorithm>
#include <utility>

namespace longhand::data {
namespace {

class InMemory : public Dataset {
 public:
  InMemory(std::shared_ptr<const Sequences> sequences, int64_t begin, int64_t end)
      : sequences_(std::move(sequences)), begin_(begin), end_(end) {}

  int64_t size() const override { return end_ - begin_; }

  int64_t length(int64_t index) const override {
    return static_cast<int64_t>(sequences_->tokens(at(index)).size());
  }

  Batch collate(std::span<const int64_t> indices) const override {
    const int64_t count = static_cast<int64_t>(indices.size());
    Tensor lengths = Tensor::empty({count}, DType::i32);
    Tensor targets = Tensor::empty({count}, DType::i32);
    int64_t longest = 0;
    bool padded = false;
    for (int64_t b = 0; b < count; ++b) {
      const int64_t n = length(indices[b]);
      padded |= b > 0 && n != longest;
      longest = std::max(longest, n);
      lengths.data<int32_t>()[b] = static_cast<int32_t>(n);
      targets.data<int32_t>()[b] = sequences_->target(at(indices[b]));
    }
    Tensor tokens = Tensor::empty({count, longest}, DType::i32);
    for (int64_t b = 0; b < count; ++b) {
      int32_t* const row = tokens.data<int32_t>() + b * longest;
      const auto from = sequences_->tokens(at(indices[b]));
      std::fill(std::copy(from.begin(), from.end(), row), row + longest, 0);
    }
    return {std::move(tokens), std::move(targets), padded ? std::move(lengths) : Tensor()};
  }

 private:
  // The index of an example among all sequences.
  int64_t at(int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "example ", index,
                     " is out of range for a dataset of ", size(), " examples");
    return begin_ + index;
  }

  std::shared_ptr<const Sequences> sequences_;
  int64_t begin_, end_;
};

}  // namespace

void Sequences::add(std::span<const uint8_t> tokens, int32_t target) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ends_.push_back(static_cast<int64_t>(tokens_.size()));
  targets_.push_back(target);
}

void Sequences::remove_last() {
  targets_.pop_back();
  ends_.pop_back();
  tokens_.resize(ends_.empty() ? 0 : ends_.back());
}

std::unique_ptr<Dataset> in_memory(std::shared_ptr<const Sequences> sequences, int64_t begin,
                                   int64_t end) {
  check<DataError>(0 <= begin && begin <= end && end <= sequences->size(), "sequences ", begin,
                   " to ", end, " are out of range for ", sequences->size(), " sequences");
  return std::make_unique<InMemory>(std::move(sequences), begin, end);
}

std::unique_ptr<Dataset> in_memory(Sequences sequences) {
  const int64_t size = sequences.size();
  return in_memory(std::make_shared<const Sequences>(std::move(sequences)), 0, size);
}

}  // namespace longhand::data

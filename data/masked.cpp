#include "longhand/data/masked.h"

#include <string_view>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/random.h"

namespace longhand::data {
namespace {

class Masked final : public Dataset {
 public:
  Masked(std::unique_ptr<Dataset> all, int32_t mask, double fraction, const Generator& generator)
      : all_(std::move(all)), mask_(mask), fraction_(fraction), generator_(generator) {}

  int64_t size() const override { return all_->size(); }
  int64_t length(int64_t index) const override { return all_->length(index); }
  std::vector<Segment> segments() const override { return all_->segments(); }
  std::string fingerprint() const override {
    return text_digest(concat_message(all_->fingerprint(), " masked ", fraction_, " ", mask_));
  }

  Batch collate(std::span<const int64_t> indices) const override {
    Batch batch = all_->collate(indices);
    batch.tokens = batch.tokens.clone();
    batch.targets = Tensor::full(batch.tokens.shape(), ignore_index, DType::i32);
    const int64_t width = batch.tokens.size(1);
    for (int64_t b = 0; b < std::ssize(indices); ++b) {
      RandomStream random(generator_.fork(static_cast<uint64_t>(indices[b])));
      int32_t* const tokens = batch.tokens.data<int32_t>() + b * width;
      int32_t* const targets = batch.targets.data<int32_t>() + b * width;
      const int64_t n = length(indices[b]);
      const auto certain = static_cast<int64_t>(random.below(n));
      for (int64_t i = 0; i < n; ++i) {
        if (random.uniform() >= fraction_ && i != certain) continue;
        targets[i] = std::exchange(tokens[i], mask_);
      }
    }
    return batch;
  }

 private:
  std::unique_ptr<Dataset> all_;
  int32_t mask_;
  double fraction_;
  Generator generator_;
};

}  // namespace

TaskInfo masked(const TaskInfo& info) {
  return {.name = info.name,
          .vocabulary = info.vocabulary + 1,
          .classes = info.vocabulary,
          .per_token = true,
          .max_length = info.max_length};
}

Task masked(Task task, double fraction, uint64_t seed) {
  const Generator generator = Generator(seed).fork("mask");
  const auto mask = static_cast<int32_t>(task.info.vocabulary);
  const auto wrap = [&](std::unique_ptr<Dataset>& all, std::string_view split) {
    if (all) all = std::make_unique<Masked>(std::move(all), mask, fraction, generator.fork(split));
  };
  wrap(task.train, "train");
  wrap(task.validation, "validation");
  wrap(task.test, "test");
  task.info = masked(task.info);
  return task;
}

}  // namespace longhand::data

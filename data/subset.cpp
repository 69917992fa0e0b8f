#include "longhand/data/subset.h"

#include <algorithm>
#include <utility>

namespace longhand::data {
namespace {

class First final : public Dataset {
 public:
  First(std::unique_ptr<Dataset> all, int64_t count)
      : all_(std::move(all)), size_(std::min(count, all_->size())) {}
  int64_t size() const override { return size_; }
  int64_t length(int64_t index) const override { return all_->length(index); }
  Batch collate(std::span<const int64_t> indices) const override { return all_->collate(indices); }

 private:
  std::unique_ptr<Dataset> all_;
  int64_t size_;
};

}  // namespace

std::unique_ptr<Dataset> first_examples(std::unique_ptr<Dataset> dataset, int64_t count) {
  return std::make_unique<First>(std::move(dataset), count);
}

}  // namespace longhand::data

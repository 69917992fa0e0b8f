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
    Batch batch = blank_batch(*this, indices, false);
    const size_t longest = static_cast<size_t>(batch.tokens.size(1));
    for (size_t b = 0; b < indices.size(); ++b) {
      const int64_t i = at(indices[b]);
      const auto from = sequences_->tokens(i);
      std::copy(from.begin(), from.end(), batch.tokens.data<int32_t>() + b * longest);
      batch.targets.data<int32_t>()[b] = sequences_->target(i);
    }
    return batch;
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

#include "longhand/data/in_memory.h"

#include <algorithm>
#include <utility>

namespace longhand::data {
namespace {

template <class Token>
class InMemory : public Dataset {
 public:
  InMemory(std::shared_ptr<const SequencesOf<Token>> sequences, int64_t begin, int64_t end)
      : sequences_(std::move(sequences)), begin_(begin), end_(end) {}

  int64_t size() const override { return end_ - begin_; }

  int64_t length(int64_t index) const override { return std::ssize(sequences_->tokens(at(index))); }

  Batch collate(std::span<const int64_t> indices) const override {
    Batch batch = blank_batch(*this, indices, sequences_->per_token());
    const int64_t longest = batch.tokens.size(1);
    int32_t *tokens = batch.tokens.data<int32_t>(), *targets = batch.targets.data<int32_t>();
    const bool classes = sequences_->kind() == TargetKind::classes;
    for (const int64_t index : indices) {
      const int64_t i = at(index);
      std::ranges::copy(sequences_->tokens(i), tokens);
      tokens += longest;
      if (!classes) continue;
      std::ranges::copy(sequences_->targets(i), targets);
      targets += sequences_->per_token() ? longest : 1;
    }
    if (!classes) batch.targets = numbers_of(indices);
    return batch;
  }

 private:
  // Numbers (B, K) f32, or labels (B, K) u8.
  Tensor numbers_of(std::span<const int64_t> indices) const {
    Tensor out = Tensor::empty({std::ssize(indices), sequences_->width()});
    float* to = out.data<float>();
    for (const int64_t index : indices)
      to = std::ranges::copy(sequences_->numbers(at(index)), to).out;
    return sequences_->kind() == TargetKind::labels ? out.to(DType::u8) : out;
  }

  // The index of an example among all sequences.
  int64_t at(int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "example ", index,
                     " is out of range for a dataset of ", size(), " examples");
    return begin_ + index;
  }

  std::shared_ptr<const SequencesOf<Token>> sequences_;
  int64_t begin_, end_;
};

}  // namespace

template <class Token>
std::unique_ptr<Dataset> in_memory(std::shared_ptr<const SequencesOf<Token>> sequences,
                                   int64_t begin, int64_t end) {
  check<DataError>(0 <= begin && begin <= end && end <= sequences->size(), "sequences ", begin,
                   " to ", end, " are out of range for ", sequences->size(), " sequences");
  return std::make_unique<InMemory<Token>>(std::move(sequences), begin, end);
}

template <class Token>
std::unique_ptr<Dataset> in_memory(SequencesOf<Token> sequences) {
  const int64_t size = sequences.size();
  return in_memory(std::make_shared<const SequencesOf<Token>>(std::move(sequences)), 0, size);
}

template <class Token>
Task split_sequences(const TaskInfo& info, const SequencesOf<Token>& all,
                     const SplitFractions& fractions, uint64_t seed, const std::string& source,
                     const SplitSizes& most, const Splits& splits) {
  if (splits.undivided) return undivided(info, in_memory(SequencesOf<Token>(all)), splits);
  std::vector<std::string_view> contents;
  for (int64_t i = 0; i < all.size(); ++i) contents.push_back(all.content(i));
  const auto parts = split_by_content(contents, fractions, Generator(seed).fork("split"), source);
  const auto select = [&](const std::vector<int64_t>& indices, int64_t limit) {
    const bool classes = all.kind() == TargetKind::classes;
    SequencesOf<Token> selected =
        classes ? SequencesOf<Token>(all.per_token()) : SequencesOf<Token>(all.kind(), all.width());
    for (const int64_t i : indices) {
      if (limit > 0 && selected.size() >= limit) break;
      if (classes)
        selected.add(all.tokens(i), all.targets(i));
      else
        selected.add(all.tokens(i), all.numbers(i));
    }
    return in_memory(std::move(selected));
  };
  return {info, select(parts[0], most.train), select(parts[1], most.validation),
          select(parts[2], most.test)};
}

#define LONGHAND_SEQUENCES(T)                                                                  \
  template std::unique_ptr<Dataset> in_memory(std::shared_ptr<const SequencesOf<T>>, int64_t,  \
                                              int64_t);                                        \
  template std::unique_ptr<Dataset> in_memory(SequencesOf<T>);                                 \
  template Task split_sequences(const TaskInfo&, const SequencesOf<T>&, const SplitFractions&, \
                                uint64_t, const std::string&, const SplitSizes&, const Splits&)
LONGHAND_SEQUENCES(uint8_t);
LONGHAND_SEQUENCES(int32_t);
#undef LONGHAND_SEQUENCES

}  // namespace longhand::data

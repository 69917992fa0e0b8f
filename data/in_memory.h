// Sequences of tokens in memory, each with its class or with the classes of its tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// The sequences, stored contiguously, with one target each or, `per_token`, with one for each
/// token. Token is uint8_t, for tokens below 256, or int32_t.
template <class Token>
class SequencesOf {
 public:
  SequencesOf() = default;
  explicit SequencesOf(bool per_token) : per_token_(per_token) {}
  /// Sequences with this number of numbers or labels in place of targets.
  SequencesOf(TargetKind kind, int64_t width) : kind_(kind), width_(width) {}

  int64_t size() const { return static_cast<int64_t>(ends_.size()); }
  bool per_token() const { return per_token_; }
  TargetKind kind() const { return kind_; }
  int64_t width() const { return width_; }
  std::span<const float> numbers(int64_t index) const {
    return std::span(numbers_).subspan(static_cast<size_t>(index * width_),
                                       static_cast<size_t>(width_));
  }
  std::span<const Token> tokens(int64_t index) const { return part(tokens_, index); }
  std::span<const int32_t> targets(int64_t index) const {
    return per_token_ ? part(targets_, index) : std::span(targets_).subspan(index, 1);
  }
  /// The tokens as bytes.
  std::string_view content(int64_t index) const {
    const auto bytes = std::as_bytes(tokens(index));
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  void add(std::span<const Token> tokens, std::span<const int32_t> targets) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    targets_.insert(targets_.end(), targets.begin(), targets.end());
    ends_.push_back(static_cast<int64_t>(tokens_.size()));
  }
  void add(std::span<const Token> tokens, std::span<const float> numbers) {
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    add(tokens, std::span<const int32_t>());
  }
  void add(std::span<const Token> tokens, int32_t target) { add(tokens, {&target, 1}); }
  void remove_last() {
    ends_.pop_back();
    tokens_.resize(ends_.empty() ? 0 : ends_.back());
    targets_.resize(per_token_ ? tokens_.size() : ends_.size());
  }

 private:
  /// The values of a sequence, one for each token.
  template <class T>
  std::span<const T> part(const std::vector<T>& values, int64_t index) const {
    const int64_t begin = index == 0 ? 0 : ends_[index - 1];
    return std::span(values).subspan(begin, ends_[index] - begin);
  }

  bool per_token_ = false;
  std::vector<Token> tokens_;
  std::vector<int64_t> ends_;
  std::vector<int32_t> targets_;
  TargetKind kind_ = TargetKind::classes;
  int64_t width_ = 0;
  std::vector<float> numbers_;  // or labels, 0 and 1
};
using Sequences = SequencesOf<uint8_t>;

/// Returns sequences begin … end-1 as a dataset, padded with 0. The lengths of a batch distinguish
/// padding from tokens 0.
template <class Token>
std::unique_ptr<Dataset> in_memory(std::shared_ptr<const SequencesOf<Token>> sequences,
                                   int64_t begin, int64_t end);
/// Returns all sequences as a dataset.
template <class Token>
std::unique_ptr<Dataset> in_memory(SequencesOf<Token> sequences);

/// Returns a task with the splits of split_by_content(), by tokens, each cut to the first `most` of
/// its sequences (0: all). With `splits.undivided`, the requested split has all of them.
template <class Token>
Task split_sequences(const TaskInfo& info, const SequencesOf<Token>& all,
                     const SplitFractions& fractions, uint64_t seed, const std::string& source,
                     const SplitSizes& most = {}, const Splits& splits = {});

}  // namespace longhand::data

// Sequences of tokens below 256, each with a class, in memory with one byte per token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// The sequences, stored contiguously.
class Sequences {
 public:
  int64_t size() const { return static_cast<int64_t>(targets_.size()); }
  std::span<const uint8_t> tokens(int64_t index) const {
    const int64_t begin = index == 0 ? 0 : ends_[index - 1];
    return {tokens_.data() + begin, static_cast<size_t>(ends_[index] - begin)};
  }
  int32_t target(int64_t index) const { return targets_[index]; }
  void add(std::span<const uint8_t> tokens, int32_t target);
  void remove_last();

 private:
  std::vector<uint8_t> tokens_;
  std::vector<int64_t> ends_;
  std::vector<int32_t> targets_;
};

/// Returns sequences begin … end-1 as a dataset, padded with 0. The lengths of a batch distinguish
/// padding from tokens 0.
std::unique_ptr<Dataset> in_memory(std::shared_ptr<const Sequences> sequences, int64_t begin,
                                   int64_t end);
/// Returns all sequences as a dataset.
std::unique_ptr<Dataset> in_memory(Sequences sequences);

}  // namespace longhand::data

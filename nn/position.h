// Position encodings.
#pragma once

#include <optional>
#include <string>

#include "longhand/nn/module.h"

namespace longhand::nn {

/// Returns sin and cos of position / 10000^(2i/width) in columns 2i and 2i+1: (length, width).
/// Vaswani et al. 2017, 3.5.
Tensor sinusoids(int64_t length, int64_t width, DType dtype);

/// Returns, for rotate_pairs(), the cosines and sines (N, 1, D) of the angles n · 10000^(-2i/D) at
/// positions n from `first`. Inner products of rows of (B, N, H, D) rotated by these depend only on
/// the distance of their positions. Su et al. 2021 (arXiv 2104.09864), eq. 34, with the halves of a
/// row paired. Throws ShapeError if D is odd.
Variable turns_of_positions(int64_t first, int64_t N, int64_t D, DType dtype);

/// Positions added to token embeddings: a learned table, sinusoids, or (rotary, none) nothing.
class Position : public Module {
 public:
  /// Throws ConfigError unless kind is learned, sinusoidal, rotary or none.
  Position(const Scope& scope, const std::string& kind, int64_t max_length, int64_t width);
  /// Returns x (B, N, width), whose first row is at position `first`, plus row n of the table at
  /// position n. The last `padding` rows have no position.
  Variable forward(const Variable& x, int64_t first = 0, int64_t padding = 0) const;

 private:
  std::optional<Parameter> weight_;  // (max_length, width), initialised from N(0, 0.02²)
  Tensor table_;                     // the sinusoids; constant, not part of a checkpoint
};

}  // namespace longhand::nn

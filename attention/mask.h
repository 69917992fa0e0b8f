// Masks built from sequence lengths, and the score of masked pairs.
#pragma once

#include <limits>
#include <vector>

#include "longhand/core/tensor.h"

namespace longhand::attention {

/// The score of a masked pair: e^never = 0.
inline constexpr double never = -std::numeric_limits<double>::infinity();

/// The lengths (B) i32 of all samples; if undefined, a single length for all of them: `tokens`.
std::vector<int32_t> sample_lengths(const Tensor& lengths, int64_t tokens);

/// (B, N, 1, 1) u8, 1 at the real tokens of sequences of the given lengths (B) i32; broadcasts
/// against (B, N, H, D).
Tensor real_tokens(const Tensor& lengths, int64_t tokens);

/// The number of real tokens among tokens first, …, first + count - 1 of sequences of these lengths
/// (B) i32; undefined if the lengths are.
Tensor lengths_from(const Tensor& lengths, int64_t first, int64_t count);

/// (B, 1, 1, 1) u8, 1 where a sequence is not empty.
Tensor not_empty(const Tensor& lengths);

}  // namespace longhand::attention

// Attention with exact weights for near keys and estimated sums for far keys. Chen et al. 2021
// (arXiv 2110.15343), section 4.1.
#pragma once

#include <cstdint>
#include <span>

#include "longhand/attention/ops/softmax_attention.h"

namespace longhand::attention {

/// The sums Σ_j w_ij [v_j, 1] over far keys, for queries [first, first + n): e^log_scale times
/// `sums`. In a sample of N tokens they apply to queries before N - gap.
struct FarSums {
  Variable sums;     // (B, n, H, D + 1)
  Tensor log_scale;  // (B, H, n), row-major
  int64_t first = 0, gap = 0;
};

/// Joins `near`, the result o_i and the logarithm L_i of the normaliser over near keys, with up to
/// two sums over far keys: (B, N, H, D), for samples of the given `lengths`.
///
///   out_i = (e^(L_i) o_i + Σ_far e^log_scale Σ_j w_ij v_j) / (e^(L_i) + Σ_far e^log_scale Σ_j w_ij)
///
/// All terms are relative to the largest one. Rows without any keys are 0. Gradients treat the
/// scales of far keys as constants.
///
/// Throws ShapeError if dtypes do not match.
Variable near_and_far(const SoftmaxAttentionResult& near, ShortVector<FarSums> far,
                      std::span<const int32_t> lengths);

}  // namespace longhand::attention

// The Gaussian kernel between rows, e^(-scale |x - y|²/2).
#pragma once

#include <cmath>

#include "longhand/attention/ops/softmax_attention.h"

namespace longhand::attention {

/// The scale for the kernel of x / D^(1/4) with bandwidth sigma.
inline double gaussian_scale(double sigma, int64_t dim) {
  return 1 / (sigma * sigma * std::sqrt(static_cast<double>(dim)));
}

/// Logarithms of the kernel, -scale |x_i - y_j|²/2 (…, N, M), for x (…, N, D) and y (…, M, D).
/// Rounding never makes them positive.
Variable gaussian_exponents(const Variable& x, const Variable& y, double scale);

/// Σ_j e^(-scale |q_i - k_j|²/2) v_j per head, divided by the sum of these weights if `normalized`.
/// The options are those of softmax_attention(), without a key_bias. Memory is linear in N and M.
Variable gaussian_attention(const Variable& q, const Variable& k, const Variable& v,
                            SoftmaxAttentionOptions options, bool normalized);

}  // namespace longhand::attention

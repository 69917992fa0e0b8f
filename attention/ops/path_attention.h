// Softmax attention with scores that pass through a product of generalised Householder matrices,
// PaTH. Yang et al. 2025 (arXiv 2505.16381).
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// All are (B, N, H, D), except beta and log_decay (B, N, H); log_decay is finite; undefined: 0.
struct PathInputs {
  Variable q, k, v, w, beta;
  Variable log_decay{};
};

/// softmax over j <= i of (q_iᵀ H_i H_(i-1) … H_(j+1) k_j + G_i - G_j) / sqrt(D), times V, with
/// H_t = I - β_t w_t w_tᵀ and G_i = Σ_(t<=i) of log_decay: (B, N, H, D). If |w| = 1 and β in 0 … 2,
/// no H lengthens a vector. Memory is linear in N. Bitwise identical for any number of threads.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable path_attention(const PathInputs& in);

/// Tokens per chunk of path_attention(): 16, 32 or 64, whichever takes the fewest products for N
/// tokens and rows of D elements; N if there are fewer tokens.
int64_t path_chunk(int64_t N, int64_t D);

/// For decoders: replaces keys k_j (B, H, t, D) by H_i k_j, for w (B, H, D) and beta (B, H).
void reflect_keys(const Tensor& keys, const Tensor& w, const Tensor& beta);

}  // namespace longhand::attention

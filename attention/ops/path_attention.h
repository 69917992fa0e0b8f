// Softmax attention whose scores pass through a product of generalised Householder matrices, PaTH. Yang et al.
// 2025 (arXiv 2505.16381).
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// All (B, N, H, D), but beta and log_decay (B, N, H); log_decay is finite, or undefined: 0.
struct PathInputs {
  Variable q, k, v, w, beta;
  Variable log_decay{};
};

/// softmax over j <= i of (q_iᵀ H_i H_(i-1) … H_(j+1) k_j + G_i - G_j) / sqrt(D), times V, with H_t = I - β_t w_t
/// w_tᵀ and G_i = Σ_(t<=i) of log_decay: (B, N, H, D). With |w| = 1 and β in 0 … 2, no H lengthens a vector. Takes
/// memory linear in N. Gives the same bits for any number of threads.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable path_attention(const PathInputs& in);

/// Tokens of a chunk of path_attention(): 16, 32 or 64, whichever needs the fewest products for N tokens and rows of D
/// numbers; N if there are fewer.
int64_t path_chunk(int64_t N, int64_t D);

/// For a decoder: keys (B, H, t, D) become H_i k_j, in place, for w (B, H, D) and beta (B, H).
void reflect_keys(const Tensor& keys, const Tensor& w, const Tensor& beta);

}  // namespace longhand::attention

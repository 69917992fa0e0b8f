// Attention with weights that are inner products of features, over all keys, in time and memory
// linear in the length. Features that are exponentials, cosines or sines of projections are never
// stored as N x m matrices.
#pragma once

#include <memory>

#include "longhand/attention/ops/feature_formula.h"
#include "longhand/attention/ops/normalised.h"
#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

struct LinearAttentionOptions {
  /// With exponentials every normaliser is at least 1, unless a sequence is empty.
  FeatureFormula features{};
  Tensor key_lengths{};  // (B) i32: keys from this index on are ignored; undefined: none
  Guard guard{};
  /// Parts that hold other keys and values of the same sequences: sums are over all parts. Null:
  /// there are none.
  std::shared_ptr<const Join> join{};
};

/// out_i = sum_j w_ij v_j / sum_j w_ij, w_ij = φ(q_i)·φ(k_j), for q (B, N, H, D), k (B, M, H, D)
/// and v (B, M, H, E) of any strides: (B, N, H, E), row-major. Computed by associativity as φ(q)
/// (φ(k)ᵀ [v, 1]). Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5; Choromanski et al. 2020
/// (arXiv 2009.14794), eq. 4. If a normaliser is closer to 0 than Guard::floor() (no key to attend
/// to, or no common feature), the result and its gradients are 0.
///
/// For the gradients, saves the inputs, the result, sums over the keys (m (E + 2) per head) and the
/// normalisers. If `normalisers` is not null, it is set to the normalisers (B, N, H) before any
/// guard. Bitwise identical for any number of threads. Throws ShapeError if shapes or dtypes do not
/// match.
Variable linear_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LinearAttentionOptions& options, Tensor* normalisers = nullptr);

}  // namespace longhand::attention

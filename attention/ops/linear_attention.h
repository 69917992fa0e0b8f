// Attention whose weights are inner products of features, over all keys: in time and memory linear
// in the length, without the N x m features where they are exponentials of projections.
#pragma once

#include "longhand/attention/ops/normalised.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

struct LinearAttentionOptions {
  /// The features are e^t, not t. Factors that cancel are chosen so that nothing overflows and, if
  /// a sequence is not empty, every normaliser is at least 1.
  bool exponentials = false;
  /// W (m, D) or (H, m, D), a constant: t = W x, and of keys minus half_norm |x|²; only with
  /// exponentials. Undefined: t is x itself.
  Tensor projection{};
  double half_norm = 0;
  Tensor key_lengths{};  // (B) i32: keys from there on do not count; undefined: all do
  Guard guard{};
};

/// out_i = sum_j w_ij v_j / sum_j w_ij,  w_ij = φ(q_i)·φ(k_j), for q (B, N, H, D), k (B, M, H, D)
/// and v (B, M, H, E) of any strides: (B, N, H, E), row-major. Associativity makes it φ(q) (φ(k)ᵀ
/// [v, 1]). Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5; Choromanski et al. 2020 (arXiv
/// 2009.14794), eq. 4. A normaliser of exactly 0, with nothing to attend to or no feature in
/// common, gives 0 and gradient 0.
///
/// For the gradients it keeps, beside its inputs and result, sums over the keys (m (E + 2) a head)
/// and the normalisers, which `normalisers`, if not null, is set to: (B, N, H), before any guard.
/// The same bits for any number of threads. Throws ShapeError where shapes or dtypes do not fit.
Variable linear_attention(const Variable& q, const Variable& k, const Variable& v,
                          const LinearAttentionOptions& options, Tensor* normalisers = nullptr);

}  // namespace longhand::attention

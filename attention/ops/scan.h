// Causal attention whose weights are inner products of features, in time linear in the length and
// without the N x m features where they are exponentials of projections: the sums, and their
// normalisation.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens that causal sums take at once.
inline constexpr int64_t causal_chunk = 48;

struct CausalKernelOptions {
  /// The features are e^t, not t. Factors that cancel are chosen so that nothing overflows: c below
  /// is the largest t of keys so far, and of each query the largest t is taken off.
  bool exponentials = false;
  /// W (m, D) or (H, m, D), a constant: t = W x, and of keys minus half_norm |x|²; only with
  /// exponentials. Undefined: t is x itself.
  Tensor projection{};
  double half_norm = 0;
  /// c (B, N, H), which must not fall along N. The features of key j are e^c_j
  /// φ(k_j). Undefined: 0. Not with exponentials, which have their own.
  Tensor log_scale{};
  int64_t chunk = causal_chunk;  // at most that
};

/// e^-c_i [sum_j w_ij v_j, sum_j w_ij] over j <= i,  w_ij = φ(q_i)·φ(k_j), for q and k (B, N, H, D)
/// and v (B, N, H, E) of any strides: (B, N, H, E + 1). Katharopoulos et al. 2020 (arXiv
/// 2006.16236), eq. 9: inside chunks of tokens by their masked weights, between chunks by the state
/// S = sum_j φ(k_j) [v_j, 1]ᵀ. Neither values nor bits at i depend on what comes after i. c is a
/// constant to the gradient; only e^(c_j - c_i) <= 1 is ever computed.
///
/// For the gradients it keeps, beside its inputs, c and every fourth state: features are computed
/// again. The same bits for any number of threads. Throws ShapeError where shapes or dtypes do not
/// fit.
Variable causal_kernel_sums(const Variable& q, const Variable& k, const Variable& v,
                            const CausalKernelOptions& options = {});

/// What keeps a normaliser away from 0 where features have signs. eps is in the scale that the
/// features were stabilised by; where a guard acts, gradients take that scale as a constant.
struct Guard {
  enum class Kind {
    none,
    add,   // den + 2 eps where |den| <= eps
    clamp  // max(den, eps)
  };
  Kind kind = Kind::none;
  double eps = 0;
};

/// The sums over their normalisers: (B, N, H, D). A normaliser of exactly 0, with nothing to attend
/// to or no feature in common, gives 0 and gradient 0.
Variable normalised(const Variable& sums, const Guard& guard = {});

/// How many of the normalisers (B, N, H) are at most 0, of the first lengths[b] tokens of each
/// sequence (undefined: of all).
int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths);

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a log_scale that looks at the past alone.
Tensor running_max(const Tensor& x);

}  // namespace longhand::attention

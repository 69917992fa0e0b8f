// Causal attention whose weights are inner products of features, in time linear in the length: the
// sums, and their normalisation.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens that causal sums take at once.
inline constexpr int64_t causal_chunk = 64;

/// [sum_j (fq_i·fk_j) v_j, sum_j fq_i·fk_j] over j <= i, (B, N, H, D + 1), for features fq and fk
/// (B, N, H, m) and v (B, N, H, D), any strides. Katharopoulos et al. 2020 (arXiv 2006.16236), eq.
/// 9: inside chunks of tokens by their masked weights, between chunks by the state S = sum fk_j
/// [v_j, 1]ᵀ, kept at the start of each chunk. Neither values nor bits at i depend on what comes
/// after i.
///
/// With log_scale c (B, N, H), the features of key j are e^c_j fk_j, and row i of the result is
/// e^-c_i times its sums. c must not fall along N, so that only e^(c_j - c_i) <= 1 is ever
/// computed; it is a constant to the gradient.
Variable causal_kernel_sums(const Variable& fq, const Variable& fk, const Variable& v,
                            const Tensor& log_scale = {}, int64_t chunk = causal_chunk);

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

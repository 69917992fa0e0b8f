// Attention whose weights are inner products of features, in time linear in the length.
#pragma once

#include "longhand/attention/variant.h"

namespace longhand::attention {

/// out_i = sum_j (fq_i · fk_j) v_j / sum_j fq_i · fk_j, over all j: fq (B, N, H, m), fk (B, M, H,
/// m), v (B, M, H, D), out (B, N, H, D), any strides. Associativity makes it fq (fkᵀ v): N m D,
/// without the N x M weights. Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5. The features of
/// padding must be 0; sequences of length 0 give a finite result.
Variable kernel_attention(const Variable& fq, const Variable& fk, const Variable& v,
                          const Mask& mask);

/// The same over j <= i, with M = N (eq. 9 there): inside chunks of tokens by their masked weights,
/// between chunks by the state S = sum fk_j v_jᵀ, kept at the start of each chunk. Neither values
/// nor bits at i depend on what comes after i.
///
/// With log_scale c (B, N, H), the features of key j are e^c_j fk_j. c must not fall along N, so
/// that only e^(c_j - c_i) <= 1 is ever computed; it is a constant to the gradient.
Variable causal_kernel_attention(const Variable& fq, const Variable& fk, const Variable& v,
                                 const Tensor& log_scale = {}, int64_t chunk = 64);

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a log_scale that looks at the past alone.
Tensor running_max(const Tensor& x);

}  // namespace longhand::attention

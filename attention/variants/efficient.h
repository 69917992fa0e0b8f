// Efficient attention: two softmaxes, no projection.
#pragma once

#include "longhand/attention/registry.h"

namespace longhand::attention {

/// O = softmax_D(Q) (softmax_M(K)ᵀ V): of each query over its D entries, of each entry d over the
/// keys. Shen et al. 2018 (arXiv 1812.01243). The weights of a query are positive and sum to 1;
/// there is no 1/sqrt(D). Causal: at i, the softmax over keys is one over j <= i.
std::unique_ptr<Variant> make_efficient_attention(const nn::Scope& scope, const Config& config);

}  // namespace longhand::attention

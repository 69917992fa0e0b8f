// The means of clusters of tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// The means (B, count, H, D) of the tokens x (B, N, H, D) of each cluster, for the cluster members
/// (B, H, N) i32 of each token, in [0, count); tokens from lengths[b] on (B or 1 lengths) count in none. The
/// mean of no tokens is 0. Differentiable with respect to x.
Variable cluster_means(const Variable& x, const Tensor& members,
                       const std::vector<int32_t>& lengths, int64_t count);

}  // namespace longhand::attention

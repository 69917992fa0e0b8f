// Means of clusters of tokens, and tokens ordered by cluster.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// The means (B, count, H, D) of the tokens x (B, N, H, D) of each cluster. `members` (B, H, N) i32
/// is the cluster of each token, in [0, count); tokens from lengths[b] on (B or 1 lengths) are
/// ignored. An empty cluster has the mean 0. Differentiable with respect to x.
Variable cluster_means(const Variable& x, const Tensor& members,
                       const std::vector<int32_t>& lengths, int64_t count);

/// The tokens of each head in blocks of `size` places; each block belongs to one cluster.
struct ClusterBlocks {
  Tensor tokens;                   // (B, H, blocks size) i32: the token at each place, or -1
  Tensor places;                   // (B, H, N) i32: the place of each token, or -1
  std::vector<int32_t> of_blocks;  // (B, H, blocks): the cluster of each block, or -1
};
ClusterBlocks cluster_blocks(const Tensor& members, const std::vector<int32_t>& lengths,
                             int64_t count, int64_t size);

}  // namespace longhand::attention

// Landmarks: means of segments or clusters of tokens, and tokens drawn at random.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand::attention {

/// Where each of `count` segments of n >= count tokens begins, followed by n. Lengths differ by at most
/// one; the shorter segments come first.
std::vector<int64_t> segments(int64_t n, int64_t count);

/// m different numbers of 0 … n-1, uniformly, in ascending order.
std::vector<int64_t> draw_subset(RandomStream& random, int64_t n, int64_t m);

/// How many of m landmarks each sample has: as many as tokens if it has fewer, but at least 1.
std::vector<int32_t> landmark_counts(const std::vector<int32_t>& lengths, int64_t m);

/// The means (B, m, H, D) of the segments of the first lengths[b] tokens of x (B, N, H, D), counts[b] of
/// them; the others are 0. `lengths` and `counts` have one entry if all samples are the same.
Variable segment_means(const Variable& x, const std::vector<int32_t>& lengths,
                       const std::vector<int32_t>& counts, int64_t m);

/// The weights of the tokens first … first + tokens - 1 in these means: (samples, 1, m, tokens).
Tensor segment_weights(const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts,
                       int64_t m, int64_t first, int64_t tokens, DType dtype);

/// Clusters the first lengths[b] tokens of x (B, N, H, D), for each head, into counts[b] clusters by
/// `steps` of Lloyd's algorithm (1982) from the segments.
struct Clusters {
  /// (B, H, m, N): the weights of the mean of each cluster; an empty one keeps its last. Undefined unless
  /// with_means.
  Tensor means;
  Tensor members;  // (B, H, N) i32: the cluster of each token; 0 from lengths[b] on
};
Clusters cluster(const Tensor& x, const std::vector<int32_t>& lengths,
                 const std::vector<int32_t>& counts, int64_t m, int64_t steps, bool with_means);

}  // namespace longhand::attention

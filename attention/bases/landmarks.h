// Landmarks: means of segments or clusters of tokens, and randomly sampled tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand::attention {

/// The first token of each of `count` segments of n >= count tokens, followed by n. Segment lengths
/// differ by at most one; the shorter segments come first.
std::vector<int64_t> segments(int64_t n, int64_t count);

/// Samples m distinct integers from 0 … n-1 uniformly; returns them in ascending order.
std::vector<int64_t> draw_subset(RandomStream& random, int64_t n, int64_t m);

/// The number of landmarks, of m, that each sample has: at most its number of tokens, at least 1.
std::vector<int32_t> landmark_counts(const std::vector<int32_t>& lengths, int64_t m);

/// The means (B, m, H, D) of counts[b] segments of the first lengths[b] tokens of x (B, N, H, D),
/// then 0. `lengths` and `counts` have one entry if all samples are the same.
Variable segment_means(const Variable& x, const std::vector<int32_t>& lengths,
                       const std::vector<int32_t>& counts, int64_t m);

/// The weights of tokens first … first + tokens - 1 in these means: (samples, 1, m, tokens).
Tensor segment_weights(const std::vector<int32_t>& lengths, const std::vector<int32_t>& counts,
                       int64_t m, int64_t first, int64_t tokens, DType dtype);

/// Clusters the first lengths[b] tokens of x (B, N, H, D), per head, into counts[b] clusters by
/// `steps` steps of Lloyd's algorithm (1982), starting from the segments.
struct Clusters {
  /// (B, H, m, N): the weights of the mean of each cluster; an empty cluster keeps its previous
  /// ones. Undefined unless with_means.
  Tensor means;
  Tensor members;  // (B, H, N) i32: the cluster of each token; 0 from lengths[b] on
};
Clusters cluster(const Tensor& x, const std::vector<int32_t>& lengths,
                 const std::vector<int32_t>& counts, int64_t m, int64_t steps, bool with_means);

}  // namespace longhand::attention

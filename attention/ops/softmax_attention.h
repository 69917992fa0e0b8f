// Exact softmax attention in memory O(N): tile by tile, never the N x M matrix.
#pragma once

#include <vector>

#include "longhand/autograd/variable.h"
#include "longhand/core/random.h"

namespace longhand::attention {

struct SoftmaxAttentionOptions {
  double scale = 0;              // τ; 0: 1 / sqrt(D)
  bool causal = false;           // query i attends to keys j <= i
  int64_t window = 0;            // and, if not 0, to those with |i - j| < window
  Tensor key_lengths{};          // (B) i32: not to keys from there on; undefined: to all
  Tensor query_lengths{};        // (B) i32: and queries from there on attend to nothing
  std::vector<double> slopes{};  // of each head, H or none: -slope |i - j| is added to the scores
  double dropout = 0;            // of the probabilities; see ProbabilityDropout
  Generator generator{0};        // of the dropout
};

/// softmax(τ QKᵀ + bias) V for every head: q (B, N, H, D), k and v (B, M, Hkv, D), where H is a
/// multiple of Hkv and head h reads that of h Hkv / H. The result is (B, N, H, D), row-major. Any
/// strides; only a D that is not innermost in memory costs a copy. A query with nothing to attend
/// to gives 0 and gets gradients of 0, and so do keys that nobody attends to, without any of their
/// values being looked at; scores of any finite size are fine.
///
/// For the gradients it keeps, beside its inputs and its result, one number a query and head, and
/// computes the probabilities again. The same bits for any number of threads.
///
/// Throws ShapeError where shapes or dtypes do not fit, with causal, window or slopes if N != M.
Variable softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                           const SoftmaxAttentionOptions& options);

}  // namespace longhand::attention

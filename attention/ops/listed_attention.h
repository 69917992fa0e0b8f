// Softmax attention of each query to a list of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Appends to `keys` the indices of the keys of query i in sample b and head h, in any order, each
/// at most once. Called from several threads, in the forward pass and again for the gradients, so
/// it must append the same keys every time.
using KeysOfQuery =
    std::function<void(int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys)>;

struct ListedOptions {
  double scale = 1;
  /// (B, H, N, most), of any strides: for the n-th key of each list, the bias added to its score,
  /// and the constant factor of its probability. Undefined: 0 and 1. Elements beyond the end of a
  /// list are not read.
  Variable added{};
  Tensor factors{};
};

/// softmax(scale QKᵀ + added) V over the listed keys of each query, for q (B, N, H, D), k and v
/// (B, M, H, D) with any strides: (B, N, H, D), row-major; 0 for a query without keys. Scores may
/// have any finite magnitude. Differentiable in q, k, v and `added`; lists are constants. Saves
/// inputs, result and two elements per query and head. Bitwise identical for any number of threads.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable listed_attention(const Variable& q, const Variable& k, const Variable& v,
                          const ListedOptions& options, KeysOfQuery keys_of);

/// Computes listed_attention() and the logarithms of its normalisers, -inf where a query has no
/// keys. Both are differentiable.
SoftmaxAttentionResult listed_attention_with_sums(const Variable& q, const Variable& k,
                                                  const Variable& v, const ListedOptions& options,
                                                  KeysOfQuery keys_of);

}  // namespace longhand::attention

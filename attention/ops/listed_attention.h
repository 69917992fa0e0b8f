// Softmax attention of each query to a list of keys.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Appends to `keys` the indices of the keys of query i of sample b and head h, in any order, each at
/// most once. Several threads call it, in the forward pass and again for the gradients, so it must
/// append the same keys every time.
using KeysOfQuery =
    std::function<void(int64_t b, int64_t h, int64_t i, std::vector<int32_t>& keys)>;

struct ListedOptions {
  double scale = 1;
  /// (B, H, N, most), of any strides: for the n-th key of each list, what is added to its score, and
  /// the factor, a constant, of its probability. Undefined: 0 and 1. Numbers beyond the end of a
  /// list are not read.
  Variable added{};
  Tensor factors{};
};

/// softmax(scale QKᵀ + added) V over the listed keys of each query, for q (B, N, H, D), k and v (B, M, H, D)
/// with any strides: (B, N, H, D), row-major. Differentiable with respect to q, k, v and `added`. A
/// query without keys gives 0, and gradients treat the lists as constants. Scores may have any finite magnitude. Saves the inputs, the result and two
/// numbers per query and head, and gives the same bits for any number of threads.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable listed_attention(const Variable& q, const Variable& k, const Variable& v,
                          const ListedOptions& options, KeysOfQuery keys_of);

/// listed_attention() and the logarithms of its normalisers, -inf where a query has no keys. Both are
/// differentiable.
SoftmaxAttentionResult listed_attention_with_sums(const Variable& q, const Variable& k,
                                                  const Variable& v, const ListedOptions& options,
                                                  KeysOfQuery keys_of);

}  // namespace longhand::attention

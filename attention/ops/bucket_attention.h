// Softmax attention of each token to its neighbours in buckets.
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens sorted into buckets, in R rounds: i32 tensors (B, H, R, N); `begin` is (B, H, R, buckets
/// + 1). Only the first n tokens of a sample are in buckets, n the last element of `begin`.
struct Buckets {
  Tensor bucket;  // of each token
  Tensor sorted;  // the tokens by bucket, and by their positions within one
  Tensor place;   // of each token in `sorted`
  Tensor begin;   // the first place of each bucket, and n
  int64_t window = 1;
  bool causal = false;
};

/// softmax(scale QKᵀ) V for q, k and v (B, N, H, D) with any strides: (B, N, H, D), row-major. A
/// token attends to the tokens that share its bucket in any round and are at most `window` places
/// before it or, unless causal, after it; to each once, and to itself only if there are no others.
/// Results and gradients of tokens in no bucket are 0, and their values are not used. Scores may
/// have any finite magnitude. Saves the inputs, the buckets, the result and one element per token
/// and head. Bitwise identical for any number of threads. Gradients treat the buckets as constants.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable bucket_attention(const Variable& q, const Variable& k, const Variable& v, double scale,
                          const Buckets& buckets);

}  // namespace longhand::attention

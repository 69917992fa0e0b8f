// Decoder: causal attention one token at a time.
#pragma once

#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand::attention {

/// Causal attention one token at a time: what a variant keeps between tokens.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// The result (B, H, D) for the next token's q (B, H, D), k and v (B, kv_heads, D): the row that
  /// forward() has there. q and k may be undefined where the variant does not use queries and keys
  /// (Traits::uses_queries_and_keys).
  virtual Tensor step(const Tensor& q, const Tensor& k, const Tensor& v) = 0;
  /// Of what is kept now.
  virtual int64_t bytes() const = 0;
};

}  // namespace longhand::attention

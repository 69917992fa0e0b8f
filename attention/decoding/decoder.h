// Decoder: causal attention one token at a time.
#pragma once

#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand::attention {

/// The next token of B sequences. q and k may be undefined if the variant does not use queries and
/// keys (Capabilities::uses_queries_and_keys).
struct Token {
  Tensor q;     // (B, H, D)
  Tensor k, v;  // (B, kv_heads, D)
  Tensor x{};   // (B, H D), for variants with Capabilities::uses_x; see Inputs::x
};

/// Causal attention one token at a time, with state kept in between. Parameters must not change.
class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Returns the result (B, H, D) for the next token: the row of forward() at its position.
  virtual Tensor step(const Token& token) = 0;
  Tensor step(const Tensor& q, const Tensor& k, const Tensor& v) { return step({q, k, v}); }
  /// Advances by a token like step() but without its result: where the state grows, at a cost that
  /// does not depend on the number of tokens so far.
  virtual void append(const Token& token) { step(token); }
  /// Bytes of the current state.
  virtual int64_t bytes() const = 0;
  /// Bytes after this number of tokens, which must be at least the number so far. By default
  /// bytes(), for states of constant size.
  virtual int64_t bytes_after(int64_t) const { return bytes(); }

  /// Bytes of the state that a step only reads, and bytes that it reads and writes.
  struct Traffic {
    int64_t read = 0, updated = 0;
  };
  /// The traffic of the latest step. By default, each token updates the whole state.
  virtual Traffic traffic() const { return {.updated = bytes()}; }
};

}  // namespace longhand::attention

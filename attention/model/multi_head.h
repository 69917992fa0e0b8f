// Multi-head attention: projections around a variant. Vaswani et al. 2017 (arXiv 1706.03762),
// 3.2.2.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "longhand/attention/model/transformer_config.h"
#include "longhand/attention/variant.h"
#include "longhand/nn/low_rank_linear.h"
#include "longhand/nn/norm.h"
#include "longhand/nn/short_conv.h"

namespace longhand::attention {

/// Ranks of the projections; 0: full.
struct ProjectionRanks {
  int64_t query = 0, key = 0, value = 0, output = 0;
};

/// The state that a layer keeps between the tokens of decoded sequences.
struct AttentionState {
  std::unique_ptr<Decoder> kernel;
  nn::ConvState query{}, key{}, value{};  // of the short convolutions

  int64_t bytes() const;
};

/// output(concat over heads of kernel(query(x), key(x), value(x))). Heads are strided views of the
/// projections (B, N, H·D): splitting and joining them copies nothing.
///
/// With Surroundings, the projections pass through a short convolution, then queries and keys are
/// normalised in each head, then rotated; the result of the kernel is normalised in each head, then
/// multiplied by g(gate(x)).
class MultiHeadAttention : public nn::Module {
 public:
  /// The width of the model is config.heads · config.head_dim, the width of keys and values
  /// kv_heads · head_dim. A variant whose weights do not depend on queries and keys (see
  /// Capabilities::uses_queries_and_keys) has no projections for them, and one that does not read
  /// keys (see Capabilities::uses_keys) has none for keys. With `rotary`, queries and keys are
  /// rotated by their positions (Su et al. 2021, arXiv 2104.09864). Throws ConfigError for `rotary`
  /// if the variant has no queries and keys, and for `rotary` or a short convolution if its keys
  /// are not single tokens. Without queries and keys, qk_norm has no effect.
  MultiHeadAttention(const nn::Scope& scope, const std::string& variant, const Config& config,
                     bool rotary, const ProjectionRanks& ranks = {},
                     const Surroundings& around = {});

  /// Maps x (B, N, H·D), the tokens of the pass, to (B, N, H·D). A `state`, which must be empty,
  /// receives these as the first tokens of their sequences, as by step().
  nn::Lazy forward(const nn::Lazy& x, const Mask& mask, const nn::Pass& pass,
                   AttentionState* state = nullptr);

  /// Returns the initial state for a batch of sequences. Throws ConfigError if the variant has no
  /// decoder or is not causal.
  AttentionState decoder(int64_t batch) const;
  /// Returns the result for the next tokens x (B, 1, H·D), at `position`, of the sequences that
  /// `state` has processed: the row that forward() returns there.
  nn::Lazy step(const nn::Lazy& x, AttentionState& state, int64_t position) const;

  Variant& kernel() { return *kernel_; }

 private:
  struct Projected {
    Variable q, k, v;       // (B, N or M, heads or kv_heads, D); q and k may be undefined
    Variable gate, tokens;  // (B, N, H·D); undefined without a gate, or if the kernel reads no x
  };
  Projected project(const nn::Lazy& x, const Mask& mask, const nn::Pass& pass,
                    AttentionState* state) const;
  // Queries or keys, normalised and rotated head by head, as the kernel receives them.
  Variable prepared(const Variable& x, const std::optional<nn::Norm>& norm,
                    const Variable& turns) const;
  // The rotation of `tokens` tokens from position `first`; undefined without rotary positions.
  Variable turns(int64_t first, int64_t tokens) const;
  // The steps after the kernel, whose result is `out` (B, N, H, D).
  nn::Lazy finished(const Variable& out, const Variable& gate) const;

  int64_t heads_, head_dim_, kv_heads_;
  bool rotary_;
  Surroundings around_;
  std::unique_ptr<nn::LinearOfRank> query_, key_;  // null if the kernel does not use them
  nn::LinearOfRank value_;
  std::unique_ptr<nn::LinearOfRank> gate_;
  std::optional<nn::ShortConv> query_conv_, key_conv_, value_conv_;
  std::optional<nn::Norm> query_norm_, key_norm_;
  std::unique_ptr<Variant> kernel_;
  std::optional<nn::Norm> head_norm_;
  nn::LinearOfRank output_;
};

/// The error message for rotary positions with variants that do not use queries and keys.
std::string no_use_for_rotary(const std::string& variants);
/// Throws ConfigError for rotary positions and short convolutions if the keys of a variant are
/// mixtures of tokens (Capabilities::shortens).
void check_keys_are_tokens(const std::string& variant, const Capabilities& capabilities,
                           bool rotary, const Surroundings& around);

}  // namespace longhand::attention

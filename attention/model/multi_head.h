// Multi-head attention: projections around a variant. Vaswani et al. 2017 (arXiv 1706.03762),
// 3.2.2.
#pragma once

#include <memory>
#include <string>

#include "longhand/attention/variant.h"
#include "longhand/nn/low_rank_linear.h"

namespace longhand::attention {

/// Ranks of the projections; 0: full.
struct ProjectionRanks {
  int64_t query = 0, key = 0, value = 0, output = 0;
};

/// output(concat over heads of kernel(query(x), key(x), value(x))). Heads are strided views of the
/// projections (B, N, H·D): splitting and joining them copies nothing.
class MultiHeadAttention : public nn::Module {
 public:
  /// The width of the model is config.heads · config.head_dim, that of keys and values kv_heads ·
  /// head_dim. A variant whose weights do not depend on queries and keys (see
  /// Capabilities::uses_queries_and_keys) has no projections for them, and one that does not read keys
  /// (see Capabilities::uses_keys) none for keys. With `rotary`, queries and
  /// keys are rotated by their positions (Su et al. 2021, arXiv 2104.09864). Throws ConfigError for
  /// `rotary` if the variant has no queries and keys, or if its keys are not single tokens.
  MultiHeadAttention(const nn::Scope& scope, const std::string& variant, const Config& config,
                     bool rotary, const ProjectionRanks& ranks = {});

  /// x (B, N, H·D) to (B, N, H·D).
  nn::Lazy forward(const nn::Lazy& x, const Mask& mask, const nn::Pass& pass);

  /// The result for the next tokens x (B, 1, H·D) of the sequences that `decoder`, one of the
  /// kernel, has processed up to `position`: the row that forward() returns there.
  nn::Lazy step(const nn::Lazy& x, Decoder& decoder, int64_t position) const;

  Variant& kernel() { return *kernel_; }

 private:
  int64_t heads_, head_dim_, kv_heads_;
  bool rotary_;
  std::unique_ptr<nn::LinearOfRank> query_, key_;  // null if the kernel does not use them
  nn::LinearOfRank value_;
  std::unique_ptr<Variant> kernel_;
  nn::LinearOfRank output_;
};

/// The error message for rotary positions with a variant that does not use queries and keys.
std::string no_use_for_rotary(const std::string& variant);

}  // namespace longhand::attention

// One Transformer block: attention and a feed-forward network, each on a residual branch.
#pragma once

#include <optional>

#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/model/transformer_config.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/feed_forward.h"
#include "longhand/nn/residual.h"

namespace longhand::attention {

/// One block: two calls of nn::residual_branch(), one with attention and one with the feed-forward
/// network, with pre-norm or post-norm.
class Block : public nn::Module {
 public:
  Block(const nn::Scope& scope, const TransformerConfig& config, const Config& attention);
  Variable forward(const Variable& x, const Mask& mask, const nn::Pass& pass,
                   AttentionState* state = nullptr);
  /// See MultiHeadAttention::decoder() and step().
  AttentionState decoder(int64_t batch) const { return attention_.decoder(batch); }
  Variable step(const Variable& x, AttentionState& state, int64_t position) const;
  Variant& kernel() { return attention_.kernel(); }

 private:
  template <class Attend>
  Variable apply(const Variable& x, const nn::Pass& pass, const Attend& attend) const;

  nn::NormPlace norm_;
  nn::Norm norm1_;
  MultiHeadAttention attention_;
  nn::Dropout dropout1_;
  std::optional<nn::Norm> norm2_;
  std::optional<nn::FeedForward> mlp_;
  std::optional<nn::Dropout> dropout2_;
};

}  // namespace longhand::attention

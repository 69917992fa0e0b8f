// Transformer: token embeddings, a stack of blocks, a head.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/attention/model/block.h"
#include "longhand/attention/model/transformer_config.h"
#include "longhand/nn/embedding.h"
#include "longhand/nn/linear.h"
#include "longhand/nn/norm.h"
#include "longhand/nn/position.h"

namespace longhand::attention {

/// What stands before the blocks: tokens and positions to vectors.
class Embeddings : public nn::Module {
 public:
  Embeddings(const nn::Scope& scope, const TransformerConfig& config);
  /// tokens (B, N) i32, the first at position `first`: (B, N, d_model), or (B, N+1, d_model) with a
  /// class token in front.
  Variable forward(const Tensor& tokens, const nn::Pass& pass, int64_t first = 0) const;
  const nn::Parameter& token_weight() const { return token_.weight; }

 private:
  nn::Embedding token_;
  std::optional<nn::Parameter> class_token_;  // (d_model)
  nn::Position position_;
  nn::Dropout dropout_;
};

/// From vectors to logits.
class Head : public nn::Module {
 public:
  /// With `tied`, the weight is that one and only a bias is owned.
  Head(const nn::Scope& scope, const TransformerConfig& config, const nn::Parameter* tied);
  /// Logits of x.
  Variable forward(const nn::Lazy& x) const;

 private:
  std::optional<nn::Linear> hidden_;
  std::optional<nn::Parameter> weight_;  // (classes, width)
  nn::Parameter bias_;                   // (classes)
  const nn::Parameter* tied_;
};

/// An encoder or, with config.causal, a decoder-only Transformer.
class Transformer : public nn::Module {
 public:
  /// Throws ConfigError where config makes no model, or the variant cannot do what it asks.
  Transformer(const nn::Scope& scope, const TransformerConfig& config);

  /// Logits (B, classes), or (B, N, classes) where config.per_token, for tokens (B, N) i32 and
  /// lengths (B) i32 (undefined: nothing is padded). Throws ShapeError for tokens outside of the
  /// vocabulary, or more than max_length of them. With rows (R) i32, places in tokens counted in
  /// row-major order, a model with config.per_token gives (R, classes): the head reads those tokens
  /// alone.
  Variable forward(const Tensor& tokens, const Tensor& lengths, const nn::Pass& pass,
                   const Tensor& rows = {});

  const TransformerConfig& config() const { return config_; }
  /// What attends in a layer, 0 <= layer < config().layers.
  Variant& kernel(int64_t layer) { return blocks_[layer].kernel(); }

 private:
  friend class TransformerDecoder;

  TransformerConfig config_;
  Embeddings embeddings_;
  nn::ModuleList<Block> blocks_;
  std::optional<nn::Norm> norm_;
  Head head_;
};

/// A causal model token by token: a batch of sequences from their start. What a token costs does
/// not grow with their length where the variant's decoder does not. The model must outlive it and
/// keep its parameters meanwhile.
class TransformerDecoder {
 public:
  /// Throws ConfigError for a model that is not causal, gives no logits for tokens, or whose
  /// variant does not go token by token.
  TransformerDecoder(Transformer& model, int64_t batch);

  /// Logits (B, classes) at the next tokens (B) i32: the row that forward() has there, to rounding.
  /// Throws ShapeError for more than max_length of them.
  Tensor step(const Tensor& tokens);
  /// Tokens so far.
  int64_t position() const { return position_; }
  /// Of what the layers keep now.
  int64_t bytes() const;

 private:
  Transformer& model_;
  int64_t batch_, position_ = 0;
  std::vector<std::unique_ptr<Decoder>> decoders_;  // one a layer
};

}  // namespace longhand::attention

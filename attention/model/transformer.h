// Transformer: token embeddings, a stack of blocks, a head.
#pragma once

#include <optional>
#include <vector>

#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/model/transformer_config.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/embedding.h"
#include "longhand/nn/feed_forward.h"
#include "longhand/nn/linear.h"
#include "longhand/nn/norm.h"
#include "longhand/nn/position.h"
#include "longhand/nn/residual.h"

namespace longhand::attention {

/// The layer before the blocks: maps tokens and positions to vectors.
class Embeddings : public nn::Module {
 public:
  Embeddings(const nn::Scope& scope, const TransformerConfig& config);
  /// Maps tokens (B, N) i32, the first at position `first`, to (B, N, d_model), or to (B, N+1,
  /// d_model) with a class token in front. In a pass over a part of each sequence, positions start
  /// at that of the part, and tokens past the end of the sequences have none.
  Variable forward(const Tensor& tokens, const nn::Pass& pass, int64_t first = 0) const;
  const nn::Parameter& token_weight() const { return token_.weight; }

 private:
  nn::Embedding token_;
  std::optional<nn::Parameter> class_token_;  // (d_model)
  nn::Position position_;
  std::optional<nn::Norm> norm_;
  nn::Dropout dropout_;
};

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

/// The layer after the blocks: maps vectors to logits.
class Head : public nn::Module {
 public:
  /// With `tied`, the head uses that weight and owns only a bias.
  Head(const nn::Scope& scope, const TransformerConfig& config, const nn::Parameter* tied);
  /// Returns the logits of x.
  Variable forward(const nn::Lazy& x) const;

 private:
  std::optional<nn::Linear> hidden_;
  std::optional<nn::Parameter> weight_;  // (classes, width)
  nn::Parameter bias_;                   // (classes)
  const nn::Parameter* tied_;
};

/// The decoder of an autoencoder (Poli et al. 2024, arXiv 2403.17844, B.6): one vector per
/// sequence, plus the sinusoids of a position, to one per token by gelu(linear(norm)), twice.
class Reconstruction : public nn::Module {
 public:
  Reconstruction(const nn::Scope& scope, const TransformerConfig& config);
  /// Maps vectors (B, d_model) to (B, n, d_model), for n tokens or the tokens of the pass.
  Variable forward(const Variable& sequences, int64_t n, const nn::Pass& pass) const;

 private:
  nn::Position position_;
  nn::Norm norm1_, norm2_;
  nn::Linear linear1_, linear2_;
};

/// An encoder or, with config.causal, a decoder-only Transformer.
class Transformer : public nn::Module {
 public:
  /// Parameters have the dtype of the scope, or f64 if config.dtype says so. Throws ConfigError if
  /// config is invalid or requires something that the variant lacks.
  Transformer(const nn::Scope& scope, const TransformerConfig& config);

  /// Logits (B, classes), or (B, N, classes) with config.per_token, for tokens (B, N) i32 and
  /// lengths (B) i32 (undefined: no padding). With rows (R) i32, row-major indices into tokens, a
  /// model with config.per_token returns (R, classes): the head is applied to those tokens only.
  /// Throws ShapeError if N exceeds max_length, or for tokens outside the vocabulary.
  ///
  /// In a pass over a part of each sequence (Pass::join), tokens (B, n) are the part's, rows index
  /// them, and lengths are of whole sequences, of N tokens. With config.per_token the result is the
  /// part's; otherwise every part gets that of whole sequences, and the loss must be counted once,
  /// or as a share on each part: gradients are those of the sum of all losses. Throws ConfigError
  /// for a class token, which belongs to no part.
  Variable forward(const Tensor& tokens, const Tensor& lengths, const nn::Pass& pass,
                   const Tensor& rows = {});

  const TransformerConfig& config() const { return config_; }
  /// The variant of a layer, 0 <= layer < config().layers.
  Variant& kernel(int64_t layer) { return blocks_[layer].kernel(); }

 private:
  friend class TransformerDecoder;

  void check_part(const Tensor& tokens, const nn::Pass& pass) const;

  TransformerConfig config_;
  Embeddings embeddings_;
  nn::ModuleList<Block> blocks_;
  std::optional<Reconstruction> reconstruction_;
  std::optional<nn::Norm> norm_;
  Head head_;
};

/// Runs a causal model token by token, on a batch of sequences from their start. The cost of a
/// token is constant if the state of the variant's decoder is. The model must outlive the decoder,
/// and its parameters must not change meanwhile.
class TransformerDecoder {
 public:
  /// Throws ConfigError if the model is not causal, has no config.per_token, reconstructs, or has a
  /// variant without a decoder.
  TransformerDecoder(Transformer& model, int64_t batch);

  /// Logits (B, classes) for the next tokens (B) i32: up to rounding, the row that forward()
  /// returns at their position. Throws ShapeError after max_length tokens.
  Tensor step(const Tensor& tokens);
  /// Returns the logits of step() for the last of the next tokens (B, T) i32. The first tokens of
  /// sequences pass through the layers together, as in forward(), and use as much memory.
  Tensor read(const Tensor& tokens);
  /// Number of tokens so far.
  int64_t position() const { return position_; }
  /// Bytes of the current state of all layers.
  int64_t bytes() const;

 private:
  Tensor logits(const Variable& x) const;

  Transformer& model_;
  int64_t batch_, position_ = 0;
  std::vector<AttentionState> states_;  // one per layer
};

}  // namespace longhand::attention

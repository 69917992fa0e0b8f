// Transformer: token embeddings, a stack of blocks, a head.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/attention/multi_head.h"
#include "longhand/nn/dropout.h"
#include "longhand/nn/embedding.h"
#include "longhand/nn/feed_forward.h"
#include "longhand/nn/norm.h"
#include "longhand/nn/position.h"

namespace longhand::attention {

/// Everything that determines a Transformer's shape.
struct TransformerConfig {
  // what the task says
  int64_t vocabulary = 0;
  int64_t classes = 0;
  bool per_token = false;  // logits for every token, not for the sequence

  // the [model] section
  int64_t max_length = 0;
  int64_t d_model = 64, heads = 2, layers = 2;
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: as many
  int64_t d_mlp = 128;   // 0: blocks without a feed-forward part
  bool causal = false;
  std::string norm =
      "pre";  // pre (Xiong et al. 2020, arXiv 2002.04745) | post (Vaswani et al. 2017)
  std::string norm_type = "layer_norm";  // layer_norm | rms_norm
  std::string positions = "learned";     // learned | sinusoidal | rotary | none
  std::string pooling = "mean";          // mean | cls | last; of sequences to be classified
  int64_t head_hidden = 0;               // width of a ReLU layer in the head; 0: the head is linear
  bool tied_embeddings = false;          // the head's weight is the token embedding
  double dropout = 0;  // of embeddings, of both residual branches, inside the feed-forward part

  // the [attention] section
  std::string attention = "softmax";
  Options attention_options{"attention"};

  /// Reads [model] and [attention] (attention.type names the variant). vocabulary, classes and
  /// per_token come from the task, as do the defaults of max_length and causal. Throws ConfigError
  /// for values that make no model: heads that do not divide d_model, pooling "cls" with causal, …
  static TransformerConfig read(const Options& model, const Options& attention, int64_t vocabulary,
                                int64_t classes, bool per_token, int64_t task_length,
                                bool task_causal);
};

/// One block. Pre-norm: x += attention(norm1(x)); x += mlp(norm2(x)). Post-norm:
/// x = norm1(x + attention(x)); x = norm2(x + mlp(x)).
class Block : public nn::Module {
 public:
  Block(const nn::Scope& scope, const TransformerConfig& config, const Config& attention);
  Variable forward(const Variable& x, const Mask& mask, const nn::Pass& pass);
  /// As MultiHeadAttention::step().
  Variable step(const Variable& x, Decoder& decoder, int64_t position) const;
  Variant& kernel() { return attention_.kernel(); }

 private:
  template <class Attend>
  Variable apply(const Variable& x, const nn::Pass& pass, const Attend& attend) const;

  bool pre_norm_;
  nn::Norm norm1_;
  MultiHeadAttention attention_;
  nn::Dropout dropout1_;
  std::optional<nn::Norm> norm2_;
  std::optional<nn::FeedForward> mlp_;
  std::optional<nn::Dropout> dropout2_;
};

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
  /// Logits of x, or of norm(x) with a norm.
  Variable forward(const Variable& x, const nn::Norm* norm) const;

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

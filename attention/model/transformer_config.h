// TransformerConfig: everything that determines a Transformer's shape.
#pragma once

#include <string>
#include <vector>

#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

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
  std::string pooling = "mean";          // mean | cls | last; not with per_token
  int64_t head_hidden = 0;               // width of a ReLU layer in the head; 0: the head is linear
  bool tied_embeddings = false;          // the head's weight is the token embedding
  double dropout = 0;  // of embeddings, of both residual branches, inside the feed-forward part

  // the [attention] section
  std::string attention = "softmax";  // the variant of all layers
  Options attention_options{"attention"};
  // Where layers differ in variant or options, one of each a layer; else empty. read() fills them in.
  std::vector<std::string> layer_attention{};
  std::vector<Options> layer_options{};

  /// The variant of a layer.
  const std::string& attention_of(int64_t layer) const {
    return layer_attention.empty() ? attention : layer_attention[static_cast<size_t>(layer)];
  }
  /// "softmax", or "window, linear" where layers differ.
  std::string attention_name() const;
  /// What the variant of a layer is made with, but for Config::first.
  Config attention_config(int64_t layer) const;
  /// Checks the options of every layer's variant, without making it. Throws ConfigError, naming the
  /// layer and its variant where layers differ.
  void check_attention() const;

  /// The options of [model], and their conditions: heads must divide d_model, … The defaults of
  /// vocabulary, classes, per_token, max_length and causal are the values of before, which a task
  /// decides.
  void describe(OptionVisitor& v);
  /// Reads [model] and [attention] over what `task` says. attention.type names the variant, or one
  /// for each layer. Its options apply to each layer whose variant declares them; those of one layer,
  /// such as 1.window, take precedence. Throws ConfigError for values that make no model, for options
  /// that no layer's variant declares, and for those without an effect: pooling with per_token,
  /// rotary positions under a variant without queries and keys.
  static TransformerConfig read(const Options& model, const Options& attention,
                                TransformerConfig task);
};

}  // namespace longhand::attention

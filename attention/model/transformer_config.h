// TransformerConfig: everything that determines a Transformer's shape.
#pragma once

#include <string>

#include "longhand/core/options.h"

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
  std::string attention = "softmax";
  Options attention_options{"attention"};

  /// Reads [model] and [attention] (attention.type names the variant). vocabulary, classes and
  /// per_token come from the task, as do the defaults of max_length and causal. Throws ConfigError
  /// for values that make no model: heads that do not divide d_model, pooling "cls" with causal, …, and for options without an effect:
  /// pooling with per_token, rotary positions under a variant without queries and keys.
  static TransformerConfig read(const Options& model, const Options& attention, int64_t vocabulary,
                                int64_t classes, bool per_token, int64_t task_length,
                                bool task_causal);
};

}  // namespace longhand::attention

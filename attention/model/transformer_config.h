// TransformerConfig: everything that determines a Transformer's shape.
#pragma once

#include <string>

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
  std::string pooling = "mean";          // mean | cls | last; of sequences to be classified
  int64_t head_hidden = 0;               // width of a ReLU layer in the head; 0: the head is linear
  bool tied_embeddings = false;          // the head's weight is the token embedding
  double dropout = 0;  // of embeddings, of both residual branches, inside the feed-forward part

  // the [attention] section
  std::string attention = "softmax";
  Options attention_options{"attention"};

  /// The options of [model], and their conditions: heads must divide d_model, … The defaults of
  /// vocabulary, classes, per_token, max_length and causal are the values of before, which a task
  /// decides.
  void describe(OptionVisitor& v);
  /// Reads [model] and [attention] (attention.type names the variant) over what `task` says. Throws
  /// ConfigError for values that make no model.
  static TransformerConfig read(const Options& model, const Options& attention,
                                TransformerConfig task);
};

}  // namespace longhand::attention

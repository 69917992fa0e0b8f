// TransformerConfig: the configuration of a Transformer.
#pragma once

#include <string>
#include <vector>

#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"
#include "longhand/nn/feed_forward.h"

namespace longhand::attention {

/// The options of [attention] that do not depend on the variant.
struct AttentionSection {
  std::vector<std::string> type{"softmax"};

  void describe(OptionVisitor& v);
};

/// The operations around the variant of every layer: options of [model], all off by default.
struct Surroundings {
  int64_t short_conv = 0;            // width of a convolution of q, k and v; 0: none
  std::string qk_norm = "none";      // none | l2 | rms_norm
  std::string head_norm = "none";    // none | rms_norm | layer_norm
  std::string output_gate = "none";  // none | silu | sigmoid

  void describe(OptionVisitor& v);
};

/// The linear layers of a block, in the order of TransformerConfig::low_rank.
enum class BlockLinear { query, key, value, output, fc1, fc2 };

/// One linear layer of the blocks of a model.
struct LinearLayer {
  std::string name;  // "blocks.0.attention.query", the prefix of its parameters
  int64_t in, out;   // widths
  int64_t rank;      // 0: full
  int64_t index;     // in TransformerConfig::low_rank with one rank per layer

  /// The number of elements of its weight or weights, also its multiply-adds per token.
  int64_t weights() const { return weights_of_rank(rank); }
  /// The same for another rank; 0: full.
  int64_t weights_of_rank(int64_t r) const { return r ? r * (in + out) : in * out; }
};

/// The configuration of a Transformer: sizes, options of the [model] section, variants of the
/// layers.
struct TransformerConfig {
  // given by the task
  int64_t vocabulary = 0;
  int64_t classes = 0;
  bool per_token = false;  // logits for every token instead of one per sequence
  /// What the outputs predict: one of the classes | numbers | labels.
  std::string targets = "classes";

  // the [model] section
  int64_t max_length = 0;
  int64_t d_model = 64, heads = 2, layers = 2;
  int64_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: equal to heads
  int64_t d_mlp = 128;   // 0: blocks without a feed-forward part
  nn::FeedForward::Kind mlp = nn::FeedForward::Kind::gelu;
  bool causal = false;
  std::string norm =
      "pre";  // pre (Xiong et al. 2020, arXiv 2002.04745) | post (Vaswani et al. 2017)
  std::string norm_type = "layer_norm";  // layer_norm | rms_norm
  double norm_eps = 0;                   // 0: 1e-5 for layer_norm, 1e-6 for rms_norm
  bool embedding_norm = false;           // of the sum of embeddings and positions
  std::string positions = "learned";     // learned | sinusoidal | rotary | alibi | none
  Surroundings around = Surroundings();
  std::string pooling = "mean";  // mean | cls | last; not with per_token
  /// With per_token: all logits are computed from the vector of the last token (Reconstruction).
  bool reconstruct = false;
  int64_t head_hidden = 0;       // width of a ReLU layer in the head; 0: the head is linear
  bool tied_embeddings = false;  // the head's weight is the token embedding
  /// Ranks of the linear layers of the blocks, 0: full. One rank for all, or a list with one per
  /// layer: the first block in the order of BlockLinear, then the next; without fc1 and fc2 if
  /// d_mlp is 0. Ranks of queries and keys have no effect with a variant that does not use them.
  std::vector<int64_t> low_rank{0};
  double dropout = 0;  // of embeddings, of both residual branches, inside the feed-forward part
  std::string dtype = "f32";  // of parameters and activations: f32 | f64

  /// Whether a token in front of each sequence represents the whole sequence.
  bool has_class_token() const { return !per_token && pooling == "cls"; }
  int64_t element_bytes() const { return dtype == "f64" ? 8 : 4; }

  // the [attention] section
  std::string attention = "softmax";  // the variant of all layers
  Options attention_options{"attention"};
  // If layers differ in variant or options, one entry per layer; otherwise empty. Filled in by
  // read().
  std::vector<std::string> layer_attention{};
  std::vector<Options> layer_options{};

  /// The variant of a layer.
  const std::string& attention_of(int64_t layer) const {
    return layer_attention.empty() ? attention : layer_attention[static_cast<size_t>(layer)];
  }
  /// The name of the variant, such as "softmax"; if layers differ, all names: "window, linear".
  std::string attention_name() const;
  /// The Config of the variant of a layer, without Config::first.
  Config attention_config(int64_t layer) const;
  /// The total width of the projected q, k and v of a layer; of v alone if the variant does not use
  /// queries and keys.
  int64_t projected_width(int64_t layer) const;
  /// Throws ConfigError for options of [model] that have no effect with the variants of the layers:
  /// rotary positions and qk_norm if none of them uses queries and keys, alibi if none has the
  /// option `bias` for it.
  void check_effects() const;
  /// The number of linear layers of a block: the entries of BlockLinear that apply.
  int64_t linears_per_block() const { return d_mlp > 0 ? 6 : 4; }
  /// The rank of a linear layer of a block; 0: full. Throws ConfigError if the number of ranks in
  /// low_rank does not match the linear layers of the model.
  int64_t rank_of(int64_t layer, BlockLinear which) const;
  /// The linear layers of the blocks, in the order of low_rank.
  std::vector<LinearLayer> linear_layers() const;
  /// Checks the options of every layer's variant without constructing it, and returns the values
  /// that apply; if layers differ, per layer, as "1.window". Throws ConfigError for invalid ones;
  /// the message names the layer and its variant if layers differ.
  EffectiveValues check_attention() const;

  /// Declares the options of [model] and their constraints, such as heads being a divisor of
  /// d_model. The current values of vocabulary, classes, per_token, targets, max_length, causal and
  /// reconstruct, which a task sets, are their defaults.
  void describe(OptionVisitor& v);
  /// The first part of describe(): vocabulary, classes, per_token, targets and max_length.
  void describe_sizes(OptionVisitor& v);
  /// Reads [model] and [attention] on top of the values of `task`. attention.type is the name of
  /// the variant, or a list with one name per layer. Options apply to each layer whose variant
  /// declares them; options of a single layer, such as 1.window, take precedence. Throws
  /// ConfigError for invalid values, for options that no layer's variant declares, and for options
  /// without effect: pooling with per_token, and those of check_effects(). Adds the values read
  /// from both sections to `values`; check_attention() returns those of the variants.
  static TransformerConfig read(const Options& model, const Options& attention,
                                TransformerConfig task, EffectiveSections* values = nullptr);
};

}  // namespace longhand::attention

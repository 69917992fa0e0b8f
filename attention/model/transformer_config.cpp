#include "longhand/attention/model/transformer_config.h"

#include <algorithm>
#include <utility>

#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/registry.h"
#include "longhand/core/error.h"

namespace longhand::attention {

void TransformerConfig::describe(OptionVisitor& v) {
  constexpr int64_t most = int64_t{1} << 30;
  v.integer("vocabulary", vocabulary, {1, most}, "vocabulary size", "set by the data");
  v.integer("classes", classes, {1, most}, "number of target classes", "set by the data");
  v.boolean("per_token", per_token,
            "whether each token has its own target, instead of one target per sequence",
            "set by the data");
  v.integer("max_length", max_length, {1, most}, "maximum sequence length in tokens",
            "set by the data");
  v.integer("d_model", d_model, {1, most}, "embedding dimension, a multiple of heads");
  v.integer("heads", heads, {1, most}, "number of attention heads per layer");
  v.require(d_model % heads == 0, "heads",
            concat_message("expected a divisor of d_model = ", d_model));
  v.integer("kv_heads", kv_heads, {0, most},
            "number of key and value heads, a divisor of heads; 0: same as heads");
  v.require(kv_heads == 0 || heads % kv_heads == 0, "kv_heads",
            concat_message("expected a divisor of heads = ", heads));
  v.integer("layers", layers, {1, most}, "number of layers (Transformer blocks)");
  d_mlp = 2 * d_model;
  v.integer("d_mlp", d_mlp, {0, most},
            "hidden dimension of the feed-forward network; 0: no feed-forward network",
            "2 d_model");
  v.boolean("causal", causal, "whether tokens attend only to themselves and earlier tokens",
            "set by the data");
  v.choice("norm", norm, {"pre", "post"},
           "where normalisation is applied: to the input of each sublayer (Xiong et al. 2020), or "
           "after its residual connection (Vaswani et al. 2017)");
  v.choice("norm_type", norm_type, {"layer_norm", "rms_norm"}, "type of normalisation");
  v.choice("positions", positions, {"learned", "sinusoidal", "rotary", "none"},
           "position encoding");
  v.require(positions != "rotary" || d_model / heads % 2 == 0, "positions",
            "rotary positions need an even width of heads");
  v.when(!per_token, "per_token = false", [&] {
    v.choice("pooling", pooling, {"mean", "cls", "last"},
             "how a sequence is reduced to one vector: the mean of its tokens, a class token "
             "prepended to them, or its last token");
    v.require(!causal || pooling != "cls", "pooling",
              "in a causal model the class token attends to itself only; use last or mean");
  });
  v.integer("head_hidden", head_hidden, {0, most},
            "size of the hidden ReLU layer in the output head; 0: a linear head");
  v.boolean("tied_embeddings", tied_embeddings,
            "whether the output head shares its weight with the token embedding");
  v.require(!tied_embeddings || (head_hidden == 0 && classes == vocabulary), "tied_embeddings",
            concat_message("expected a linear head with as many classes as tokens, got ", classes,
                           " classes and a vocabulary of ", vocabulary));
  v.number("dropout", dropout, {0, 0.999},
           "dropout probability for embeddings, for the output of each sublayer, and inside the "
           "feed-forward network");
}

std::string TransformerConfig::attention_name() const {
  if (layer_attention.empty()) return attention;
  std::string names;
  for (const std::string& name : layer_attention)
    names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

Config TransformerConfig::attention_config(int64_t layer) const {
  Config config;
  config.name = attention_of(layer);
  config.heads = heads;
  config.head_dim = d_model / heads;
  config.kv_heads = kv_heads;
  config.max_length = max_length + (!per_token && pooling == "cls");
  config.causal = causal;
  config.layer = layer;
  config.layers = layers;
  config.options =
      layer_options.empty() ? attention_options : layer_options[static_cast<size_t>(layer)];
  return config;
}

void TransformerConfig::check_attention() const {
  const auto check_layer = [&](const Config& config) {
    check_options(config.name, config);
    check<ConfigError>(
        positions != "rotary" || !capabilities(config.name, config).shortens, config.name,
        ": rotary positions apply to single tokens, but the keys of this variant are "
        "mixtures of tokens");
  };
  if (layer_attention.empty()) {
    check_layer(attention_config(0));
    std::vector<std::string> known = names_of(spec(attention).options);
    known.emplace_back("type");
    return attention_options.check_known(known);
  }
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Config config = attention_config(layer);
    try {
      check_layer(config);
    } catch (const ConfigError& error) {
      throw ConfigError(concat_message("layer ", layer, " (", config.name, "): ", error.what()));
    }
    for (const auto& [key, value] : config.options.effective())
      attention_options.record(std::to_string(layer).append(".").append(key), value);
  }
}

namespace {

// The options of each layer: its own ones, and those of the section that its variant declares.
std::vector<Options> options_of_layers(const Options& section,
                                       const std::vector<std::string>& variants) {
  std::vector<Options> layers;
  std::vector<std::string> known = {"type"}, used = {"type"};
  for (size_t layer = 0; layer < variants.size(); ++layer) {
    Options& own = layers.emplace_back("attention");
    for (const std::string& name : names_of(spec(variants[layer]).options)) {
      const std::string key = std::to_string(layer).append(".").append(name);
      known.insert(known.end(), {key, name});
      if (section.has(key)) {
        section.hand_over(key, own, name);
      } else if (section.has(name)) {
        section.hand_over(name, own, name);
        used.push_back(name);
      }
    }
  }
  section.check_known(known);
  for (const std::string& key : section.keys())
    section.require(section.is_optional(key) || key.find('.') != std::string::npos ||
                        std::find(used.begin(), used.end(), key) != used.end(),
                    key, "this value has no effect: every layer with this option sets its own");
  return layers;
}

}  // namespace

TransformerConfig TransformerConfig::read(const Options& model, const Options& attention,
                                          TransformerConfig task) {
  TransformerConfig config = read_section(model, std::move(task));
  std::vector<std::string> variants = attention.get_choices("type", {config.attention}, names());
  attention.require(
      variants.size() == 1 || static_cast<int64_t>(variants.size()) == config.layers, "type",
      concat_message("expected one variant, or one for each of ", config.layers, " layers"));
  for (const std::string& variant : variants)
    model.require(config.positions != "rotary" || capabilities(variant).uses_queries_and_keys,
                  "positions", no_use_for_rotary(variant));
  config.attention = variants.front();
  config.attention_options = attention;
  const std::vector<std::string> keys = attention.keys();
  const bool differ =
      variants.size() > 1 || std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
        return key.find('.') != std::string::npos;
      });
  if (differ) {
    variants.resize(static_cast<size_t>(config.layers), variants.front());
    config.layer_attention = variants;
    config.layer_options = options_of_layers(attention, variants);
  }
  return config;
}

}  // namespace longhand::attention

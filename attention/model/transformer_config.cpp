#include "longhand/attention/model/transformer_config.h"

#include <algorithm>
#include <utility>

#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/registry.h"
#include "longhand/core/error.h"

namespace longhand::attention {

namespace {

constexpr int64_t largest_size = int64_t{1} << 30;  // of any size

// The key of an option of one layer: "1.window".
std::string in_layer(int64_t layer, const std::string& name) {
  return std::to_string(layer) + '.' + name;
}

// The linear layers of a block, including queries and keys that its variant does not use.
std::vector<LinearLayer> linears_of_block(const TransformerConfig& c, int64_t layer) {
  const int64_t d = c.d_model, kv = d / c.heads * (c.kv_heads ? c.kv_heads : c.heads);
  std::vector<LinearLayer> all{{"attention.query", d, d, 0, 0},
                               {"attention.key", d, kv, 0, 0},
                               {"attention.value", d, kv, 0, 0},
                               {"attention.output", d, d, 0, 0}};
  if (c.d_mlp > 0) {
    const int64_t gates = c.mlp == nn::FeedForward::Kind::swiglu ? c.d_mlp : 0;
    all.push_back({"mlp.fc1", d, c.d_mlp + gates, 0, 0});
    all.push_back({"mlp.fc2", c.d_mlp, d, 0, 0});
  }
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].name = concat_message("blocks.", layer, ".", all[i].name);
    all[i].index = layer * c.linears_per_block() + static_cast<int64_t>(i);
  }
  return all;
}

bool has_alibi(const std::string& variant) { return spec(variant).alibi; }

// Throws ConfigError for an option of [model], given in `model` or not, that has no effect;
// `any_projects` and `any_alibi` tell whether a layer has queries and keys, and scores for ALiBi.
void check_effects_of(const Options& model, const TransformerConfig& c, const std::string& variants,
                      bool any_projects, bool any_alibi) {
  model.require(any_projects || c.positions != "rotary", "positions", no_use_for_rotary(variants));
  model.require(
      any_projects || c.around.qk_norm == "none", "qk_norm",
      concat_message("queries and keys would be normalised, but the weights of \"", variants,
                     "\" do not depend on them, so the option would have no effect; "
                     "use \"none\""));
  model.require(
      any_alibi || c.positions != "alibi", "positions",
      concat_message("ALiBi adds a bias to the scores of softmax attention, but \"", variants,
                     "\" has no such scores, so the option would have no effect; use "
                     "\"learned\", \"sinusoidal\" or \"none\""));
}

// The error in low_rank; empty if there is none.
std::string low_rank_problem(const TransformerConfig& c) {
  const int64_t given = std::ssize(c.low_rank), all = c.layers * c.linears_per_block();
  if (given != 1 && given != all)
    return concat_message(
        "expected one rank, or one for each of the ", all, " linear layers: ",
        c.d_mlp > 0 ? "query, key, value, output, fc1 and fc2" : "query, key, value and output",
        " of each block in turn");
  for (int64_t layer = 0; layer < (given == 1 ? 1 : c.layers); ++layer)
    for (const LinearLayer& each : linears_of_block(c, layer)) {
      const int64_t rank = c.low_rank[given == 1 ? 0 : static_cast<size_t>(each.index)];
      if (rank > std::min(each.in, each.out))
        return concat_message("rank ", rank, " exceeds the sizes of ", each.name, ", ", each.in,
                              " and ", each.out, "; 0 keeps a layer full");
    }
  return "";
}

}  // namespace

void AttentionSection::describe(OptionVisitor& v) {
  v.words("type", type, names(),
          "the variant, or a list with one variant per layer; options of a single layer i, counted "
          "from 0, are in [attention.i]");
}

void Surroundings::describe(OptionVisitor& v) {
  v.integer("short_conv", short_conv, {0, 1024},
            "width of a convolution over the tokens of queries, keys and values, one filter per "
            "channel, followed by SiLU; causal in causal models, otherwise centred; usually 4; 0: "
            "none");
  v.choice("qk_norm", qk_norm, {"none", "l2", "rms_norm"},
           "normalisation of the queries and keys of each head: to norm 1, or RMS norm with a "
           "learned scale");
  v.choice("head_norm", head_norm, {"none", "rms_norm", "layer_norm"},
           "normalisation of the result of each head, with learned parameters that the heads of a "
           "layer share");
  v.choice("output_gate", output_gate, {"none", "silu", "sigmoid"},
           "function g of an output gate: the result of attention is multiplied by g(x W + b), "
           "where x is the input of the query, key and value projections");
}

void TransformerConfig::describe_sizes(OptionVisitor& v) {
  v.integer("vocabulary", vocabulary, {1, largest_size}, "vocabulary size", "set by the data");
  v.integer("classes", classes, {1, largest_size}, "number of target classes, numbers or labels",
            "set by the data");
  v.boolean("per_token", per_token,
            "whether each token has its own target, instead of one target per sequence",
            "set by the data");
  v.choice("targets", targets, {"classes", "numbers", "labels"},
           "what the outputs are: logits of the classes, numbers (trained with the squared error), "
           "or logits of labels (binary cross entropy)",
           "set by the data");
  v.require(targets == "classes" || !per_token, "targets",
            "numbers and labels are targets of whole sequences: expected per_token = false");
  v.integer("max_length", max_length, {1, largest_size}, "maximum sequence length in tokens",
            "set by the data");
}

void TransformerConfig::describe(OptionVisitor& v) {
  describe_sizes(v);
  v.integer("d_model", d_model, {1, largest_size}, "embedding dimension, a multiple of heads");
  v.integer("heads", heads, {1, largest_size}, "number of attention heads per layer");
  v.require(d_model % heads == 0, "heads",
            concat_message("expected a divisor of d_model = ", d_model));
  v.integer("kv_heads", kv_heads, {0, largest_size},
            "number of key and value heads, a divisor of heads; 0: same as heads");
  v.require(kv_heads == 0 || heads % kv_heads == 0, "kv_heads",
            concat_message("expected a divisor of heads = ", heads));
  v.integer("layers", layers, {1, largest_size}, "number of layers (Transformer blocks)");
  d_mlp = 2 * d_model;
  v.integer("d_mlp", d_mlp, {0, largest_size},
            "hidden dimension of the feed-forward network; 0: no feed-forward network",
            "2 d_model");
  v.when(d_mlp > 0, "d_mlp above 0", [&] {
    using enum nn::FeedForward::Kind;
    v.choice("mlp", mlp,
             {{"gelu", gelu}, {"gelu_tanh", gelu_tanh}, {"relu", relu}, {"swiglu", swiglu}},
             "activation of the feed-forward network: GELU, its tanh approximation (GPT-2), ReLU, "
             "or SwiGLU, the SiLU of one projection times another one (Shazeer 2020)");
  });
  v.integers(
      "low_rank", low_rank, {0, largest_size},
      "rank of the linear layers of the blocks, each a product of two matrices; 0: full; or "
      "a list with the ranks of query, key, value, output, fc1 and fc2 of each block in turn");
  const std::string problem = low_rank_problem(*this);
  v.require(problem.empty(), "low_rank", problem);
  v.boolean("causal", causal, "whether tokens attend only to themselves and earlier tokens",
            "set by the data");
  v.choice("norm", norm, {"pre", "post"},
           "where normalisation is applied: to the input of each sublayer (Xiong et al. 2020), or "
           "after its residual connection (Vaswani et al. 2017)");
  v.choice("norm_type", norm_type, {"layer_norm", "rms_norm"}, "type of normalisation");
  v.number(
      "norm_eps", norm_eps, {.low = 0},
      "value that normalisation adds to the variance; 0: 1e-5 with layer_norm, 1e-6 with rms_norm");
  v.boolean("embedding_norm", embedding_norm,
            "whether the sum of embeddings and positions is normalised, as in BERT");
  v.choice(
      "positions", positions, {"learned", "sinusoidal", "rotary", "alibi", "none"},
      "position encoding: vectors added to the embeddings, learned or sinusoidal; a rotation of "
      "queries and keys (rotary); or the option attention.bias of every layer that has it (alibi)");
  v.require(positions != "rotary" || d_model / heads % 2 == 0, "positions",
            "rotary positions need heads of even dimension");
  around.describe(v);
  v.when(!per_token, "per_token = false", [&] {
    v.choice("pooling", pooling, {"mean", "cls", "last"},
             "how a sequence is reduced to one vector: the mean of its tokens, a class token "
             "prepended to them, or its last token");
    v.require(!causal || pooling != "cls", "pooling",
              "in a causal model the class token attends to itself only; use last or mean");
  });
  v.when(per_token, "per_token = true", [&] {
    v.boolean(
        "reconstruct", reconstruct,
        "whether the logits of all tokens are computed from the vector of the last token alone, "
        "by two layers for each position, as in an autoencoder (Poli et al. 2024)",
        "set by the data");
  });
  v.integer("head_hidden", head_hidden, {0, largest_size},
            "size of the hidden ReLU layer in the output head; 0: a linear head");
  v.boolean("tied_embeddings", tied_embeddings,
            "whether the output head shares its weight with the token embedding");
  v.require(!tied_embeddings || (head_hidden == 0 && classes == vocabulary), "tied_embeddings",
            concat_message("expected a linear head with as many classes as tokens, got ", classes,
                           " classes and a vocabulary of ", vocabulary));
  v.number("dropout", dropout, {0, 0.999},
           "dropout probability for embeddings, for the output of each sublayer, and inside the "
           "feed-forward network");
  v.choice("dtype", dtype, {"f32", "f64"},
           "element type of parameters and activations; f64 needs twice the memory");
}

std::string TransformerConfig::attention_name() const {
  return layer_attention.empty() ? attention : comma_list(layer_attention);
}

Config TransformerConfig::attention_config(int64_t layer) const {
  Config config;
  config.name = attention_of(layer);
  config.heads = heads;
  config.head_dim = d_model / heads;
  config.kv_heads = kv_heads;
  config.max_length = max_length + has_class_token();
  config.causal = causal;
  config.layer = layer;
  config.layers = layers;
  config.options =
      layer_options.empty() ? attention_options : layer_options[static_cast<size_t>(layer)];
  if (positions == "alibi" && has_alibi(config.name) && !config.options.has("bias"))
    config.options.set("bias", std::string("alibi"));
  return config;
}

int64_t TransformerConfig::rank_of(int64_t layer, BlockLinear which) const {
  if (low_rank.size() == 1) return low_rank[0];
  const std::string problem = low_rank_problem(*this);
  check<ConfigError>(problem.empty(), "model.low_rank: ", problem);
  return low_rank[static_cast<size_t>(layer * linears_per_block() + static_cast<int64_t>(which))];
}

int64_t TransformerConfig::projected_width(int64_t layer) const {
  const int64_t kv = d_model / heads * (kv_heads ? kv_heads : heads);
  const Capabilities can = capabilities(attention_of(layer), attention_config(layer));
  if (!can.uses_queries_and_keys) return kv;
  return d_model + (can.uses_keys ? 2 : 1) * kv;
}

void TransformerConfig::check_effects() const {
  bool any_projects = false, any_alibi = false;
  for (int64_t layer = 0; layer < (layer_attention.empty() ? 1 : layers); ++layer) {
    const std::string& name = attention_of(layer);
    any_projects |= capabilities(name, attention_config(layer)).uses_queries_and_keys;
    any_alibi |= has_alibi(name);
  }
  check_effects_of(Options("model"), *this, attention_name(), any_projects, any_alibi);
}

std::vector<LinearLayer> TransformerConfig::linear_layers() const {
  std::vector<LinearLayer> all;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Capabilities can = capabilities(attention_of(layer), attention_config(layer));
    const std::vector<LinearLayer> block = linears_of_block(*this, layer);
    for (size_t i = 0; i < block.size(); ++i) {
      const auto which = static_cast<BlockLinear>(i);
      if (!can.uses_queries_and_keys && (which == BlockLinear::query || which == BlockLinear::key))
        continue;
      if (!can.uses_keys && which == BlockLinear::key) continue;
      all.push_back(block[i]);
      all.back().rank = rank_of(layer, which);
    }
  }
  return all;
}

EffectiveValues TransformerConfig::check_attention() const {
  const auto check_layer = [&](const Config& config) {
    EffectiveValues values = check_options(config.name, config);
    if (positions == "alibi" && has_alibi(config.name))
      config.options.require(
          config.options.find("bias")->value == OptionValue(std::string("alibi")), "bias",
          "contradicts model.positions = \"alibi\"");
    check_keys_are_tokens(config.name, capabilities(config.name, config), positions == "rotary",
                          around);
    return values;
  };
  if (layer_attention.empty()) return check_layer(attention_config(0));
  EffectiveValues all;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const Config config = attention_config(layer);
    try {
      for (auto& [key, value] : check_layer(config)) all.emplace(in_layer(layer, key), value);
    } catch (const ConfigError& error) {
      throw ConfigError(concat_message("layer ", layer, " (", config.name, "): ", error.what()));
    }
  }
  return all;
}

namespace {

// The options of each layer: its own, and those of the section that its variant declares.
std::vector<Options> options_of_layers(const Options& section,
                                       const std::vector<std::string>& variants) {
  std::vector<Options> layers;
  std::vector<std::string> known = {"type"}, used = {"type"};
  for (size_t layer = 0; layer < variants.size(); ++layer) {
    Options& own = layers.emplace_back(section.section());
    for (const std::string& name : names_of(spec(variants[layer]).options)) {
      const std::string key = in_layer(static_cast<int64_t>(layer), name);
      known.insert(known.end(), {key, name});
      const std::string& from = section.has(key) ? key : name;
      const Options::Given* const given = section.find(from);
      if (!given) continue;
      own.set(name, given->value, given->where, given->optional);
      used.push_back(from);
    }
  }
  for (const std::string& key : section.keys()) {
    if (std::ranges::count(known, key) > 0) continue;
    for (size_t layer = 0; layer < variants.size(); ++layer) {
      const std::string own = in_layer(static_cast<int64_t>(layer), "");
      if (key.find('.') == std::string::npos)
        check_replaced(variants[layer], key, section, key);
      else if (key.starts_with(own))
        check_replaced(variants[layer], key.substr(own.size()), section, key);
    }
  }
  section.check_known(known);
  for (const std::string& key : section.keys())
    section.require(section.is_optional(key) || std::ranges::count(used, key) > 0, key,
                    "this value has no effect: every layer with this option sets its own");
  return layers;
}

}  // namespace

TransformerConfig TransformerConfig::read(const Options& model, const Options& attention,
                                          TransformerConfig task, EffectiveSections* values) {
  EffectiveSections unused;
  EffectiveSections& read = values ? *values : unused;
  TransformerConfig config = read_section(model, std::move(task), &read[model.section()]);
  std::vector<std::string> variants =
      read_options(attention, AttentionSection{{config.attention}}, &read[attention.section()])
          .type;
  attention.require(
      variants.size() == 1 || static_cast<int64_t>(variants.size()) == config.layers, "type",
      concat_message("expected one variant, or one for each of ", config.layers, " layers"));
  const bool any_projects = std::ranges::any_of(
      variants, [](const auto& name) { return capabilities(name).uses_queries_and_keys; });
  const bool any_alibi = std::ranges::any_of(variants, has_alibi);
  check_effects_of(model, config, variants.front(), any_projects, any_alibi);
  config.attention = variants.front();
  config.attention_options = attention;
  const auto of_one_layer = [](const std::string& key) {
    return key.find('.') != std::string::npos;
  };
  if (variants.size() > 1 || std::ranges::any_of(attention.keys(), of_one_layer)) {
    constexpr int64_t most_different = 1 << 16;  // each with options of its own
    model.require(config.layers <= most_different, "layers",
                  concat_message("at most ", most_different, " layers can differ"));
    variants.resize(static_cast<size_t>(config.layers), variants.front());
    config.layer_attention = variants;
    config.layer_options = options_of_layers(attention, variants);
  }
  return config;
}

}  // namespace longhand::attention

#include "longhand/attention/model/transformer_config.h"

#include <utility>

#include "longhand/attention/registry.h"

namespace longhand::attention {

void TransformerConfig::describe(OptionVisitor& v) {
  constexpr int64_t most = int64_t{1} << 30;
  v.integer("vocabulary", vocabulary, {1, most}, "different tokens", "what the data needs");
  v.integer("classes", classes, {1, most}, "different targets", "what the data needs");
  v.boolean("per_token", per_token, "whether each token has a target, not the sequence",
            "as the data has it");
  v.integer("max_length", max_length, {1, most}, "most tokens of a sequence",
            "what the data needs");
  v.integer("d_model", d_model, {1, most}, "width of the model, a multiple of heads");
  v.integer("heads", heads, {1, most}, "attention heads of a layer");
  v.require(d_model % heads == 0, "heads", concat_message("it must divide d_model = ", d_model));
  v.integer("kv_heads", kv_heads, {0, most},
            "heads of keys and values, a divisor of heads; 0: as many as heads");
  v.require(kv_heads == 0 || heads % kv_heads == 0, "kv_heads",
            concat_message("it must divide heads = ", heads));
  v.integer("layers", layers, {1, most}, "blocks");
  d_mlp = 2 * d_model;
  v.integer("d_mlp", d_mlp, {0, most},
            "width of the feed-forward part of a block; 0: blocks without one", "2 d_model");
  v.boolean("causal", causal, "whether a token attends to no later one", "as the data needs it");
  v.choice("norm", norm, {"pre", "post"},
           "normalisation before each part of a block (Xiong et al. 2020) or after it (Vaswani et "
           "al. 2017)");
  v.choice("norm_type", norm_type, {"layer_norm", "rms_norm"}, "kind of normalisation");
  v.choice("positions", positions, {"learned", "sinusoidal", "rotary", "none"},
           "how positions enter");
  v.require(positions != "rotary" || d_model / heads % 2 == 0, "positions",
            "rotary positions need an even width of heads");
  v.when(!per_token, "per_token = false", [&] {
    v.choice(
        "pooling", pooling, {"mean", "cls", "last"},
        "what represents the sequence: the mean of its tokens, a class token in front of them, "
        "or the last token");
    v.require(!causal || pooling != "cls", "pooling",
              "in a causal model the class token sees nothing but itself; use last or mean");
  });
  v.integer("head_hidden", head_hidden, {0, most},
            "width of a ReLU layer in the head; 0: the head is linear");
  v.boolean("tied_embeddings", tied_embeddings, "whether the head's weight is the token embedding");
  v.require(!tied_embeddings || (head_hidden == 0 && classes == vocabulary), "tied_embeddings",
            concat_message("the head must be linear and have as many classes (", classes,
                           ") as there are tokens (", vocabulary, ")"));
  v.number("dropout", dropout, {0, 0.999},
           "probability of embeddings, of both parts of a block, and inside the feed-forward part");
}

TransformerConfig TransformerConfig::read(const Options& model, const Options& attention,
                                          TransformerConfig task) {
  TransformerConfig config = read_section(model, std::move(task));
  config.attention = attention.get_choice("type", config.attention, names());
  config.attention_options = attention;
  return config;
}

}  // namespace longhand::attention

#include "longhand/attention/model/transformer_config.h"

#include "longhand/attention/model/multi_head.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {

TransformerConfig TransformerConfig::read(const Options& model, const Options& attention,
                                          int64_t vocabulary, int64_t classes, bool per_token,
                                          int64_t task_length, bool task_causal) {
  constexpr int64_t most = int64_t{1} << 30;
  TransformerConfig c;
  c.vocabulary = vocabulary;
  c.classes = classes;
  c.per_token = per_token;
  c.max_length = model.get_int("max_length", task_length, 1, most);
  c.d_model = model.get_int("d_model", c.d_model, 1, most);
  c.heads = model.get_int("heads", c.heads, 1, most);
  c.kv_heads = model.get_int("kv_heads", c.kv_heads, 0, most);
  c.layers = model.get_int("layers", c.layers, 1, most);
  c.d_mlp = model.get_int("d_mlp", 2 * c.d_model, 0, most);
  c.causal = model.get_bool("causal", task_causal);
  c.norm = model.get_choice("norm", c.norm, {"pre", "post"});
  c.norm_type = model.get_choice("norm_type", c.norm_type, {"layer_norm", "rms_norm"});
  c.positions =
      model.get_choice("positions", c.positions, {"learned", "sinusoidal", "rotary", "none"});
  if (!per_token)
    c.pooling = model.get_choice("pooling", c.pooling, {"mean", "cls", "last"});
  else
    model.require(
        !model.has("pooling") || model.is_optional("pooling"), "pooling",
        "this model has logits for every token, so nothing is pooled and the option would "
        "have no effect; remove it");
  c.head_hidden = model.get_int("head_hidden", c.head_hidden, 0, most);
  c.tied_embeddings = model.get_bool("tied_embeddings", c.tied_embeddings);
  c.dropout = model.get_double("dropout", c.dropout, 0, 0.999);
  c.attention = attention.get_choice("type", c.attention, names());
  c.attention_options = attention;

  model.require(c.d_model % c.heads == 0, "heads",
                concat_message("it must divide d_model = ", c.d_model));
  model.require(c.kv_heads == 0 || c.heads % c.kv_heads == 0, "kv_heads",
                concat_message("it must divide heads = ", c.heads));
  model.require(c.causal || !task_causal, "causal",
                "this task's targets are later tokens, which only a causal model must not see");
  model.require(!(c.causal && !per_token && c.pooling == "cls"), "pooling",
                "in a causal model the class token sees nothing but itself; use last or mean");
  model.require(c.positions != "rotary" || c.d_model / c.heads % 2 == 0, "positions",
                "rotary positions need an even width of heads");
  model.require(c.positions != "rotary" || capabilities(c.attention).uses_queries_and_keys,
                "positions", no_use_for_rotary(c.attention));
  model.require(!c.tied_embeddings || (c.head_hidden == 0 && c.classes == c.vocabulary),
                "tied_embeddings",
                concat_message("the head must be linear and have as many classes (", classes,
                               ") as there are tokens (", vocabulary, ")"));
  return c;
}

}  // namespace longhand::attention

// The tables of names.h.
#include "longhand/train/transfer/names.h"

namespace longhand::train {
namespace {

const std::string attention = "blocks.#.attention.";

/// Query, key and value fused in one tensor.
std::vector<std::string> fused() {
  return {attention + "query.*", attention + "key.*", attention + "value.*"};
}

const std::vector<std::string> without_gates = {"\"gelu\"", "\"gelu_tanh\"", "\"relu\""};

// https://github.com/karpathy/nanoGPT, model.py; the same names as GPT-2 in Hugging Face's
// transformers, which stores matrices as (in, out).
NameScheme gpt(const std::string& name, const std::string& title, bool transposed) {
  return {.name = name,
          .title = title,
          .backbone = "transformer.",
          .anchor = "h.0.attn.c_attn.weight",
          .lines = {{"transformer.wte.weight", {"embeddings.token.weight"}},
                    {"transformer.wpe.weight", {"embeddings.position.weight"}},
                    {"transformer.h.#.ln_1.*", {"blocks.#.norm1.*"}},
                    {"transformer.h.#.attn.c_attn.*", fused(), true},
                    {"transformer.h.#.attn.c_proj.*", {attention + "output.*"}, true},
                    {"transformer.h.#.ln_2.*", {"blocks.#.norm2.*"}},
                    {"transformer.h.#.mlp.c_fc.*", {"blocks.#.mlp.fc1.*"}, true},
                    {"transformer.h.#.mlp.c_proj.*", {"blocks.#.mlp.fc2.*"}, true},
                    {"transformer.ln_f.*", {"norm.*"}},
                    {.theirs = "lm_head.weight",
                     .ours = {"head.weight"},
                     .copy_of = "transformer.wte.weight"},
                    {"", {"head.bias"}},
                    // The causal mask.
                    {"transformer.h.#.attn.bias", {}},
                    {"transformer.h.#.attn.masked_bias", {}}},
          .needs = {{"norm", {"\"pre\""}},
                    {"norm_type", {"\"layer_norm\""}},
                    {"embedding_norm", {"false"}},
                    {"positions", {"\"learned\""}},
                    {"causal", {"true"}},
                    {"mlp", {"\"gelu\"", "\"gelu_tanh\""}}},
          .transposed = transposed};
}

// https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoder.html. It has no
// embeddings and head, which keep their names.
NameScheme encoder() {
  return {.name = "torch",
          .title = "torch.nn.TransformerEncoder",
          .backbone = "",
          .anchor = "layers.0.self_attn.in_proj_weight",
          .lines = {{"layers.#.self_attn.in_proj_*", fused()},
                    {"layers.#.self_attn.out_proj.*", {attention + "output.*"}},
                    {"layers.#.linear1.*", {"blocks.#.mlp.fc1.*"}},
                    {"layers.#.linear2.*", {"blocks.#.mlp.fc2.*"}},
                    {"layers.#.norm1.*", {"blocks.#.norm1.*"}},
                    {"layers.#.norm2.*", {"blocks.#.norm2.*"}},
                    {"norm.*", {"norm.*"}},
                    {"embeddings.token.weight", {"embeddings.token.weight"}},
                    {"embeddings.position.weight", {"embeddings.position.weight"}},
                    {"embeddings.class_token", {"embeddings.class_token"}},
                    {"embeddings.norm.*", {"embeddings.norm.*"}},
                    {"head.hidden.*", {"head.hidden.*"}},
                    {"head.*", {"head.*"}}},
          .needs = {{"norm_type", {"\"layer_norm\""}}, {"mlp", without_gates}}};
}

// BertForTokenClassification and RobertaForTokenClassification of Hugging Face's transformers, and
// models with the same names. RoBERTa has one segment, and two positions before the first token's.
NameScheme bert(const std::string& name, const std::string& title, int64_t segments,
                int64_t skipped) {
  const std::string embeddings = name + ".embeddings.", layer = name + ".encoder.layer.#.";
  return {.name = name,
          .title = title,
          .backbone = name + ".",
          .anchor = "encoder.layer.0.attention.self.query.weight",
          .lines = {{embeddings + "word_embeddings.weight", {"embeddings.token.weight"}},
                    // Every token is of the first segment.
                    {.theirs = embeddings + "position_embeddings.weight",
                     .ours = {"embeddings.position.weight"},
                     .plus_first_row_of = embeddings + "token_type_embeddings.weight",
                     .skipped = skipped},
                    {embeddings + "LayerNorm.*", {"embeddings.norm.*"}},
                    {embeddings + "position_ids", {}},
                    {layer + "attention.self.query.*", {attention + "query.*"}},
                    {layer + "attention.self.key.*", {attention + "key.*"}},
                    {layer + "attention.self.value.*", {attention + "value.*"}},
                    {layer + "attention.output.dense.*", {attention + "output.*"}},
                    {layer + "attention.output.LayerNorm.*", {"blocks.#.norm1.*"}},
                    {layer + "intermediate.dense.*", {"blocks.#.mlp.fc1.*"}},
                    {layer + "output.dense.*", {"blocks.#.mlp.fc2.*"}},
                    {layer + "output.LayerNorm.*", {"blocks.#.norm2.*"}},
                    {"classifier.*", {"head.*"}}},
          .needs = {{"norm", {"\"post\""}},
                    {"norm_type", {"\"layer_norm\""}},
                    {"embedding_norm", {"true"}},
                    {"positions", {"\"learned\""}},
                    {"causal", {"false"}},
                    {"mlp", without_gates}},
          .segments = segments};
}

}  // namespace

const std::vector<NameScheme>& name_schemes() {
  static const std::vector<NameScheme> all = {
      gpt("nanogpt", "nanoGPT", false), gpt("gpt2", "GPT-2", true), encoder(),
      bert("bert", "BERT", 2, 0), bert("roberta", "RoBERTa", 1, 2)};
  return all;
}

}  // namespace longhand::train

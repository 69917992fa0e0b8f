// Weights under the names of other programs. The logits are those of PyTorch: see data/names/make.py.
#include "longhand/train/transfer/names.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/weights.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/train/tiny_run.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

/// A file of data/names, and how it is imported.
struct Case {
  const char *file, *names;
  std::vector<std::string> model, rename{};
};

const std::vector<std::string> gpt = {"causal=true", "per_token=true", "d_mlp=32", "classes=11",
                                      "tied_embeddings=true"};
const std::vector<std::string> renames = {"embedding.=embeddings.token.",
                                          "positions.=embeddings.position.", "fc.=head."};

std::vector<std::string> with(std::vector<std::string> list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
  return list;
}

const std::vector<Case> cases = {
    {"nanogpt", "nanogpt", gpt},
    {"nanogpt_without_bias", "nanogpt", gpt},
    {"gpt2", "gpt2", with(gpt, {"mlp=\"gelu_tanh\""})},
    {"torch_pre", "torch", {"classes=3"}, renames},
    {"torch_post", "torch", {"classes=3", "norm=\"post\"", "mlp=\"relu\""}, renames},
    {"bert",
     "bert",
     {"classes=5", "per_token=true", "norm=\"post\"", "embedding_norm=true", "norm_eps=1e-12"}}};

Config config_of(const Case& c, const std::vector<std::string>& more = {}) {
  Config config = tiny_run();
  for (const char* const setting : {"vocabulary=11", "max_length=6", "layers=2", "d_mlp=12",
                                    "dropout=0", "causal=false", "per_token=false"})
    config.assign(std::string("model.") + setting);
  for (const std::string& setting : with(c.model, more)) config.assign("model." + setting);
  return config;
}

TensorFile file_of(const std::string& name) {
  return read_tensor_file(LONGHAND_SOURCE "/tests/data/names/" + name + ".npz");
}

Imported import(const TensorFile& file, const Config& config, const Case& c,
                ImportOptions options = {}) {
  options.rename = c.rename;
  return import_weights(file, config, "file", options);
}

/// The tensors of the program alone.
TensorFile state_of(const TensorFile& file) {
  TensorFile out;
  for (const auto& [name, tensor] : file.tensors)
    if (name.starts_with("state.")) out.tensors[name.substr(6)] = tensor;
  return out;
}

Tensor logits(const Imported& imported, const Tensor& tokens) {
  attention::Transformer model(nn::root(), imported.model);
  load_weights(model, imported.checkpoint);
  return model.forward(tokens, {}, nn::Pass::evaluate()).value();
}

double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double out = 0;
  for (size_t i = 0; i < x.size(); ++i) out = std::max(out, std::abs(x[i] - y[i]));
  return out;
}

}  // namespace

TEST_CASE("models under the names of other programs have the logits of PyTorch") {
  for (const Case& c : cases) {
    CAPTURE(c.file);
    const TensorFile file = file_of(c.file);
    const Tensor tokens = file.tensors.at("tokens"), want = file.tensors.at("logits");
    const Imported imported = import(state_of(file), config_of(c), c);
    REQUIRE(imported.names);
    CHECK(imported.names->name == c.names);
    CHECK(worst_difference(logits(imported, tokens), want) <= 1e-5);
    const Imported exact = import(state_of(file), config_of(c, {"dtype=\"f64\""}), c);
    CHECK(worst_difference(logits(exact, tokens), want) <= 1e-12);

    // And back: the same tensors, and those that it has written as 0.
    const TensorFile out = export_part(imported.checkpoint, "weights", c.names);
    const nn::StateDict theirs = renamed(state_of(file).tensors, c.rename);
    for (const auto& [name, tensor] : theirs) {
      CAPTURE(name);
      const std::string to =
          name.starts_with("encoder.") ? name.substr(std::string("encoder.").size()) : name;
      REQUIRE(out.tensors.contains(to));
      if (name.find("position_emb") == std::string::npos &&
          name.find("token_type") == std::string::npos)
        CHECK(identical(out.tensors.at(to), tensor));
    }
    if (std::string(c.file) != "nanogpt_without_bias") CHECK(out.tensors.size() == theirs.size());
    const Imported again = import_weights(out, config_of(c), "file");
    CHECK(identical(logits(again, tokens), logits(imported, tokens)));
  }
}

TEST_CASE("names may have other beginnings, and files no embeddings or no head") {
  const Case& nano = cases[0];
  const TensorFile file = file_of("nanogpt");
  const Tensor want =
      logits(import(state_of(file), config_of(nano), nano), file.tensors.at("tokens"));
  TensorFile compiled, bare;
  for (const auto& [name, tensor] : state_of(file).tensors) {
    compiled.tensors["_orig_mod." + name] = tensor;
    if (name.starts_with("transformer.")) bare.tensors[name.substr(12)] = tensor;
  }
  bare.tensors["h.0.attn.bias"] = Tensor::full({1, 1, 6, 6}, 1, DType::u8);  // the mask
  bare.tensors["lm_head.weight"] = bare.tensors.at("wte.weight");
  for (const TensorFile& each : {compiled, bare})
    CHECK(identical(logits(import(each, config_of(nano), nano), file.tensors.at("tokens")), want));

  // With a head of its own.
  const Imported untied = import(state_of(file), config_of(nano, {"tied_embeddings=false"}), nano);
  CHECK(identical(logits(untied, file.tensors.at("tokens")), want));

  // Without --rename, embeddings and head are new.
  const TensorFile encoder = state_of(file_of("torch_pre"));
  const Imported part = import_weights(encoder, config_of(cases[3]), "file", {.partial = true});
  CHECK(short_list(part.tensors.initialised) ==
        "embeddings.{position,token}.weight, head.{bias,weight}");
  CHECK(part.tensors.unused.size() == 4);
}

TEST_CASE("RoBERTa: the names of BERT, one segment, and two positions in front of the first") {
  const Case& bert = cases[5];
  const TensorFile file = file_of("bert");
  TensorFile theirs;
  for (const auto& [name, tensor] : state_of(file).tensors)
    theirs.tensors[name.starts_with("bert.") ? "roberta" + name.substr(4) : name] = tensor;
  Tensor& segments = theirs.tensors.at("roberta.embeddings.token_type_embeddings.weight");
  segments = segments.slice(0, 0, 1).contiguous();
  Tensor& positions = theirs.tensors.at("roberta.embeddings.position_embeddings.weight");
  Tensor longer = Tensor::full({8, 8}, 99, DType::f32);
  copy_into(longer.slice(0, 2, 8), positions);
  positions = longer;
  const Imported imported = import(theirs, config_of(bert, {"dtype=\"f64\""}), bert);
  CHECK(imported.names->name == "roberta");
  const Tensor tokens = file.tensors.at("tokens");
  CHECK(worst_difference(logits(imported, tokens), file.tensors.at("logits")) <= 1e-12);
  const TensorFile out = export_part(imported.checkpoint, "weights", "roberta");
  CHECK(out.tensors.size() == theirs.tensors.size());
  const Imported again = import_weights(out, config_of(bert, {"dtype=\"f64\""}), "file");
  CHECK(identical(logits(again, tokens), logits(imported, tokens)));
  CHECK_THAT(message_of<Error>([&] { import(theirs, config_of(bert, {"max_length=8"}), bert); }),
             Contains("model.max_length = 8 here, 6 in the file"));
}

TEST_CASE("models that other programs do not have, and wrong names, are refused") {
  const Case &nano = cases[0], &pre = cases[3], &post = cases[4], &bert = cases[5];
  const auto refusal = [](const TensorFile& file, const Config& config, const Case& c,
                          const ImportOptions& options = {}) {
    return message_of<Error>([&] { import(file, config, c, options); });
  };
  const TensorFile file = state_of(file_of("nanogpt"));
  for (const auto& [setting, text] : std::map<std::string, std::string>{
           {"norm=\"post\"",
            "model.norm = \"post\": nanoGPT corresponds to a model with model.norm = "
            "\"pre\""},
           {"positions=\"rotary\"", "model.positions = \"learned\""},
           {"causal=false", "model.causal = true"},
           {"mlp=\"swiglu\"", "model.mlp = \"gelu\" or \"gelu_tanh\""},
           {"norm_type=\"rms_norm\"", "model.norm_type = \"layer_norm\""},
           {"layers=3", "model.layers = 3 here, 2 in the file"},
           {"d_model=16", "model.d_model = 16 here, 8 in the file"},
           {"d_mlp=8", "model.d_mlp = 8 here, 32 in the file"},
           {"max_length=7", "model.max_length = 7 here, 6 in the file"}}) {
    CAPTURE(setting);
    CHECK_THAT(refusal(file, config_of(nano, {setting}), nano), Contains(text));
  }
  CHECK_THAT(
      refusal(file, config_of(nano, {"layers=3"}), nano),
      Contains("transformer.h.2.attn.c_attn.weight (blocks.2.attention.key.weight) is missing"));

  // A typing error.
  TensorFile wrong = file;
  wrong.tensors["transformer.h.1.mlp.cfc.weight"] =
      wrong.tensors.at("transformer.h.1.mlp.c_fc.weight");
  wrong.tensors.erase("transformer.h.1.mlp.c_fc.weight");
  CHECK_THAT(refusal(wrong, config_of(nano), nano),
             Contains("transformer.h.1.mlp.c_fc.weight is missing") &&
                 Contains("transformer.h.1.mlp.cfc.weight is unexpected; did you mean "
                          "transformer.h.1.mlp.c_fc.weight?"));
  // A head that is not the embedding.
  TensorFile untied = file;
  untied.tensors["lm_head.weight"] = Tensor::zeros({11, 8});
  CHECK_THAT(refusal(untied, config_of(nano), nano), Contains("model.tied_embeddings"));
  untied.tensors.erase("lm_head.weight");
  CHECK_THAT(refusal(untied, config_of(nano, {"tied_embeddings=false"}), nano),
             Contains("model.tied_embeddings = false here, and the file has no weight of a head"));

  CHECK_THAT(refusal(state_of(file_of("torch_pre")), config_of(post), pre),
             Contains("model.norm = \"post\" here, and the file has a norm after the blocks, which "
                      "models with \"pre\" have"));
  CHECK_THAT(refusal(state_of(file_of("torch_post")), config_of(pre), pre),
             Contains("model.norm = \"pre\" here, and the file has no norm after the blocks"));
  CHECK_THAT(refusal(state_of(file_of("bert")), config_of(bert, {"embedding_norm=false"}), bert),
             Contains("model.embedding_norm = true"));

  CHECK_THAT(
      refusal(file, config_of(nano), nano, {.names = "nanogtp"}),
      Contains(
          "expected one of longhand, nanogpt, gpt2, torch, bert, roberta; did you mean nanogpt?"));
  CHECK_THAT(
      refusal(file, config_of(nano), nano, {.names = "bert"}),
      Contains("no tensor has a name that ends in encoder.layer.0.attention.self.query.weight"));
  TensorFile both = file;
  for (const auto& [name, tensor] : state_of(file_of("bert")).tensors) both.tensors[name] = tensor;
  CHECK_THAT(refusal(both, config_of(nano), nano), Contains("nanogpt and of bert"));
  for (const auto& [rule, text] : std::map<std::string, std::string>{
           {"fc", "expected FROM=TO"},
           {"fc.=x", "no name begins with fc."},
           {"transformer.h.0.=transformer.h.1.", "two tensors would have the name"}}) {
    const Case renaming{"", "", {}, {rule}};
    CHECK_THAT(refusal(file, config_of(nano), renaming), Contains(text));
  }
}

TEST_CASE("models without a counterpart are not exported under other names") {
  const auto refusal = [](const std::vector<std::string>& settings, const std::string& names,
                          const std::string& part = "weights") {
    const Case c{"", "", {}};
    Config config = config_of(c, {"causal=true", "per_token=true", "classes=11"});
    for (const std::string& setting : settings) config.assign(setting);
    attention::Transformer model(nn::root(), read_model(config, nullptr));
    Checkpoint checkpoint;
    checkpoint.config = effective_config(config, nullptr);
    checkpoint.model = model.state_dict();
    checkpoint.optimizer = checkpoint.model;
    return message_of<ConfigError>([&] { export_part(checkpoint, part, names); });
  };
  CHECK_THAT(refusal({"attention.type=linformer", "attention.k=2", "model.causal=false"}, "torch"),
             Contains("has no names for blocks.{0-1}.attention.kernel."));
  CHECK_THAT(refusal({"model.output_gate=silu"}, "gpt2"),
             Contains("GPT-2 has no names for blocks.{0-1}.attention.gate"));
  CHECK_THAT(refusal({"model.mlp=swiglu"}, "torch"), Contains("model.mlp = \"swiglu\""));
  CHECK_THAT(refusal({}, "nanogpt", "optimizer"), Contains("expected --part weights or model"));
}

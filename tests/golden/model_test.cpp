// Whole models: logits and gradients of the first step, and the trajectory of training.
//
// Datasets, one row per step t: tokens (T, B, N), targets (T, B) or (T, B, N), key_keep (T, B, N),
// optional; initial/NAME and final/NAME, the parameters; logits_step0 and grad_step0/NAME (before
// clipping); losses (T) and grad_norms (T, before clipping).
#include <cmath>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/train/optimizer.h"
#include "longhand/train/schedule.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace longhand;

namespace {

constexpr double tolerance = 1e-7;

attention::TransformerConfig model_config(const test::Golden& golden) {
  const Options& c = golden.config;
  attention::TransformerConfig config;
  config.vocabulary = c.get_int("vocab", 0);
  config.per_token = c.get_choice("task", "", {"classification", "lm"}) == "lm";
  config.classes = golden.at("initial/head.bias").size(0);
  c.get_int("classes", 0);
  config.max_length = c.get_int("max_len", 0);
  config.d_model = c.get_int("d_model", 0);
  config.d_mlp = c.get_int("d_mlp", 0);
  config.heads = c.get_int("heads", 0);
  config.layers = c.get_int("layers", 0);
  config.causal = c.get_bool("causal", false);
  config.attention_options = golden.sections.at("attention");
  config.attention = config.attention_options.get_string("type", "");
  if (config.attention_options.has("max_len"))
    CHECK(config.attention_options.get_int("max_len", 0) == config.max_length);
  return config;
}

// Loads the tensors in the file; buffers that are not in the file keep their values.
void load(attention::Transformer& model, const std::map<std::string, Tensor>& values) {
  nn::StateDict state;
  for (const auto& [name, tensor] : model.state_dict()) state[name] = tensor.clone();
  for (const auto& [name, tensor] : values) state[name] = tensor;
  model.load_state_dict(state);
  for (const auto& [name, parameter] : model.named_parameters()) {
    INFO(name);
    CHECK(values.count(name));
  }
}

}  // namespace

TEST_CASE("golden: models train along independently computed trajectories") {
  int64_t cases = 0;
  for (const auto& path : test::golden_files()) {
    const test::Golden golden = test::read_golden(path);
    if (golden.kind != "model") continue;
    ++cases;
    INFO(golden.name << " (" << golden.source << ")");
    attention::Transformer model(nn::root(DType::f64), model_config(golden));
    golden.config.check_all_read();
    golden.sections.at("attention").check_all_read();
    load(model, golden.group("initial"));

    const Tensor tokens = golden.at("tokens").to(DType::i32);
    const Options& o = golden.sections.at("optimizer");
    REQUIRE(o.get_string("name", "") == "adamw");
    const auto optimizer = train::make_adam(model.named_parameters(),
                                            {.beta1 = o.get_double("betas.0", 0),
                                             .beta2 = o.get_double("betas.1", 0),
                                             .eps = o.get_double("eps", 0),
                                             .weight_decay = o.get_double("weight_decay", 0)});
    const train::Schedule schedule{.kind = train::Schedule::Kind::constant,
                                   .lr = o.get_double("lr", 0),
                                   .warmup_steps = o.get_int("warmup_steps", 0),
                                   .total_steps = tokens.size(0)};
    const double clip_norm = o.get_double("clip_norm", 0);
    o.check_all_read();

    const Tensor targets = golden.at("targets").to(DType::i32);
    const std::vector<double> losses = golden.at("losses").to_vector<double>();
    const std::vector<double> norms = golden.at("grad_norms").to_vector<double>();
    REQUIRE(losses.size() == static_cast<size_t>(tokens.size(0)));
    for (int64_t t = 0; t < tokens.size(0); ++t) {
      INFO("step " << t);
      const Tensor lengths =
          golden.has("key_keep") ? test::lengths_of(golden.at("key_keep").select(0, t)) : Tensor();
      const Variable logits =
          model.forward(tokens.select(0, t).contiguous(), lengths, {.training = true});
      if (t == 0)
        CHECK(test::relative_error(logits.value(), golden.at("logits_step0")) <= tolerance);
      const Variable loss = cross_entropy(logits, targets.select(0, t).contiguous());
      CHECK(std::abs(loss.value().item() - losses[t]) <= tolerance * std::abs(losses[t]));
      backward(loss);
      if (t == 0)
        for (const auto& [name, parameter] : model.named_parameters()) {
          INFO(name);
          const Tensor& expected = golden.at("grad_step0/" + name);
          // Some gradients are 0 up to rounding (the bias of keys under a softmax).
          double most = 0;
          for (double g : expected.to_vector<double>()) most = std::max(most, std::abs(g));
          if (most > 1e-12) CHECK(test::relative_error(parameter.grad(), expected) <= tolerance);
        }
      const train::Gradients gradients = train::take_gradients(model.named_parameters());
      const double norm = train::global_norm(gradients);
      CHECK(std::abs(norm - norms[t]) <= tolerance * norms[t]);
      optimizer->step(schedule.at(t), gradients, train::clip_scale(norm, clip_norm));
      model.after_step();
    }
    const nn::StateDict state = model.state_dict();
    for (const auto& [name, expected] : golden.group("final")) {
      INFO(name);
      CHECK(test::relative_error(state.at(name), expected) <= tolerance);
    }
  }
  CHECK(cases > 0);
}

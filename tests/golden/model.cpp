// Whole models: logits and gradients of the first step, and the trajectory of training.
//
// Datasets, one row per step t: tokens (T, B, N), targets (T, B) or (T, B, N), key_keep (T, B, N),
// optional; initial/NAME and final/NAME, the parameters; logits_step0 and grad_step0/NAME (before
// clipping); losses (T) and grad_norms (T, before clipping).
#include <cmath>

#include "longhand/attention/model/transformer.h"
#include "longhand/autograd/ops.h"
#include "longhand/train/step/optimizers.h"
#include "longhand/train/step/schedule.h"
#include "tests/golden/readers.h"
#include "tests/support/catch.h"

namespace longhand::test {
namespace {

constexpr double tolerance = 1e-7;

struct ModelOptions {
  attention::TransformerConfig config;
  std::string task = "classification";
  int64_t classes = 0;

  void describe(OptionVisitor& v) {
    v.integer("vocab", config.vocabulary, {1}, "different tokens");
    v.choice("task", task, {"classification", "lm"}, "what is predicted");
    v.integer("classes", classes, {}, "of a classification");
    v.integer("max_len", config.max_length, {1}, "most tokens of a sequence");
    v.integer("d_model", config.d_model, {1}, "width of the model");
    v.integer("d_mlp", config.d_mlp, {0}, "width of the feed-forward part");
    v.integer("heads", config.heads, {1}, "heads");
    v.integer("layers", config.layers, {1}, "blocks");
    v.boolean("causal", config.causal, "whether a token attends to no later one");
  }
};

// The options of the attention beside those of its variant.
struct AttentionOptions {
  std::string type{};
  int64_t max_length = 1;

  void describe(OptionVisitor& v) {
    v.text("type", type, "the variant");
    v.integer("max_len", max_length, {1}, "most tokens of a sequence");
  }
};

struct OptimizerOptions {
  std::string name;
  train::AdamOptions adam;
  double lr = 0, clip_norm = 0;
  int64_t warmup_steps = 0;

  void describe(OptionVisitor& v) {
    v.choice("name", name, {"adamw"}, "the optimizer");
    v.number("betas.0", adam.beta1, {}, "decay of the mean");
    v.number("betas.1", adam.beta2, {}, "decay of the mean of squares");
    v.number("eps", adam.eps, {}, "added to the root");
    v.number("weight_decay", adam.weight_decay, {}, "weight decay");
    v.number("lr", lr, {}, "learning rate");
    v.integer("warmup_steps", warmup_steps, {}, "steps of a growing rate");
    v.number("clip_norm", clip_norm, {}, "largest norm of the gradients");
  }
};

attention::TransformerConfig model_config(const Golden& golden) {
  const auto options = read_section<ModelOptions>(golden.config);
  attention::TransformerConfig config = options.config;
  config.per_token = options.task == "lm";
  config.classes = golden.at("initial/head.bias").size(0);
  const Options& section = golden.sections.at("attention");
  const auto attention = read_options(section, AttentionOptions{.max_length = config.max_length});
  CHECK(attention.max_length == config.max_length);
  config.attention = attention.type;
  config.attention_options = section;  // its variant reads the others
  for (const Field& field : schema_of<AttentionOptions>())
    config.attention_options.erase(field.name);
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

void read_model(const Golden& golden) {
  attention::Transformer model(nn::root(DType::f64), model_config(golden));
  load(model, golden.group("initial"));

  const Tensor tokens = golden.at("tokens").to(DType::i32);
  const auto o = read_section<OptimizerOptions>(golden.sections.at("optimizer"));
  REQUIRE(o.name == "adamw");
  const auto optimizer = train::make_adam(model.named_parameters(), o.adam);
  const train::Schedule schedule{.kind = train::Schedule::Kind::constant,
                                 .lr = o.lr,
                                 .warmup_steps = o.warmup_steps,
                                 .total_steps = tokens.size(0)};

  const Tensor targets = golden.at("targets").to(DType::i32);
  const std::vector<double> losses = golden.at("losses").to_vector<double>();
  const std::vector<double> norms = golden.at("grad_norms").to_vector<double>();
  REQUIRE(losses.size() == static_cast<size_t>(tokens.size(0)));
  for (int64_t t = 0; t < tokens.size(0); ++t) {
    INFO("step " << t);
    const Tensor lengths =
        golden.has("key_keep") ? lengths_of(golden.at("key_keep").select(0, t)) : Tensor();
    const Variable logits =
        model.forward(tokens.select(0, t).contiguous(), lengths, {.training = true});
    if (t == 0) CHECK(relative_error(logits.value(), golden.at("logits_step0")) <= tolerance);
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
        if (most > 1e-12) {
          CHECK(relative_error(parameter.grad(), expected) <= tolerance);
        } else {
          for (double g : parameter.grad().to_vector<double>()) CHECK(std::abs(g) <= 1e-11);
        }
      }
    const train::Gradients gradients = train::take_gradients(model.named_parameters());
    const double norm = train::global_norm(gradients);
    CHECK(std::abs(norm - norms[t]) <= tolerance * norms[t]);
    optimizer->step(schedule.at(t), gradients, train::clip_scale(norm, o.clip_norm));
    model.after_step();
  }
  const nn::StateDict state = model.state_dict();
  for (const auto& [name, expected] : golden.group("final")) {
    INFO(name);
    CHECK(relative_error(state.at(name), expected) <= tolerance);
  }
}

}  // namespace longhand::test

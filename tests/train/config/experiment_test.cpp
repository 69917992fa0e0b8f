// Experiments: configurations read, checked without data or model, and constructed.
#include "longhand/train/config/experiment.h"

#include <filesystem>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;

namespace {

// Data that would take hours to make, and a model that would not fit into memory.
Config large_config(const std::vector<std::string>& assignments = {}) {
  Config config = Config::parse(
      "[model]\nd_model = 65536\nheads = 64\nlayers = 1000\n"
      "[data]\ntask = 'listops'\ntrain_size = 1000000000000\n"
      "[train]\nsteps = 100\nbatch_size = 16\n",
      "c.toml");
  for (const std::string& assignment : assignments) config.assign(assignment);
  return config;
}

std::string error_of_large(const std::vector<std::string>& assignments) {
  return message_of<ConfigError>([&] { check_config(large_config(assignments)); });
}

}  // namespace

TEST_CASE("a configuration is checked without making data or model") {
  CHECK_NOTHROW(check_config(large_config()));
  CHECK_NOTHROW(check_config(large_config({"data.task=tokens", "data.path=none.h5"})));
  CHECK_NOTHROW(check_config(large_config(
      {"data.task=text_lm", "data.path=none", "data.length=64", "model.max_length=64"})));

  CHECK_THAT(error_of_large({"train.stesp=3"}),
             Contains("--set: train.stesp: unknown option; did you "
                      "mean steps?"));
  CHECK_THAT(error_of_large({"train.micro_batches=17"}), Contains("batch_size = 16"));
  CHECK_THAT(error_of_large({"optimizer.final_lr=0"}), Contains("applies only with schedule = "));
  CHECK_THAT(error_of_large({"optimizer.momentum=0.5"}),
             Contains("applies only with type = \"sgd\""));
  CHECK_THAT(error_of_large({"data.min_lenght=3"}), Contains("did you mean min_length?"));
  CHECK_THAT(error_of_large({"data.validation_fraction=0.2"}), Contains("with path of a file"));
  CHECK_THAT(error_of_large({"data.path=none", "data.max_depth=3"}), Contains("with no path"));
  CHECK_THAT(error_of_large({"model.heads=3"}), Contains("model.heads = 3") && Contains("d_model"));
  CHECK_THAT(error_of_large({"model.hesds=4"}), Contains("did you mean heads?"));
  CHECK_THAT(error_of_large({"model.vocabulary=3"}), Contains("tokens below 16"));
  CHECK_THAT(error_of_large({"model.max_length=100"}), Contains("sequences of up to 2000"));
  CHECK_THAT(error_of_large({"model.per_token=true"}), Contains("one target per sequence"));
  CHECK_THAT(error_of_large({"attention.type=sofmax"}), Contains("did you mean softmax?"));
  CHECK_THAT(error_of_large({"attention.type=window", "attention.windwo=3"}),
             Contains("did you mean window?"));
  CHECK_THAT(error_of_large({"attention.type=linformer", "model.causal=true"}), Contains("causal"));
  CHECK_THAT(error_of_large({"data.task=copy", "model.pooling=cls"}),
             Contains("model.pooling") && Contains("only with per_token = false"));
  CHECK_THAT(error_of_large({"data.task=text_lm", "data.path=none", "model.causal=false"}),
             Contains("model.causal = false"));
  // Conditions that depend on the data are not checked.
  CHECK_NOTHROW(
      check_config(large_config({"data.task=tokens", "data.path=none.h5", "model.pooling=last",
                                 "model.tied_embeddings=true", "model.vocabulary=300"})));
}

TEST_CASE("the effective configuration has every option, and reads back to itself") {
  const Config config = large_config();
  const auto task = read_task_info(config);
  REQUIRE(task.has_value());
  const std::string text = effective_config(config, &*task);
  CHECK_THAT(text, Contains("vocabulary = 16\n") && Contains("max_depth = 10\n") &&
                       Contains("eval_every = 10\n") && Contains("weight_decay = 0.01\n") &&
                       !Contains("final_lr") && !Contains("momentum"));
  CHECK(effective_config(Config::parse(text, "again.toml"), &*task) == text);
  // Without the task, defaults that depend on it are omitted.
  const std::string without = effective_config(config, nullptr);
  CHECK_THAT(without, !Contains("vocabulary") && !Contains("causal") && Contains("d_model"));
  CHECK(effective_config(Config::parse(without, "again.toml"), &*task) == text);
}

TEST_CASE("the effective configuration makes the same data") {
  // The default of data.seed is 0, whatever train.seed is.
  const Config config = Config::parse("[data]\ntask = 'copy'\n[train]\nseed = 3\n", "c.toml");
  const auto task = read_task_info(config);
  const Config effective = Config::parse(effective_config(config, &*task), "effective.toml");
  CHECK(effective.given().at("data.seed") == OptionValue(int64_t{0}));
  const auto hash = [](const Config& of) { return data::content_hash(*read_task(of).train, 10); };
  CHECK(hash(effective) == hash(config));
}

TEST_CASE("without the data, options of single layers stay if they were given") {
  const Config config = Config::parse(
      "[model]\nlayers = 2\n[attention]\ntype = ['window', 'linear']\nwindow = 3\n"
      "[data]\ntask = 'tokens'\npath = 'none.h5'\n",
      "c.toml");
  CHECK_THAT(effective_config(config, nullptr),
             Contains("0.window = 3\n") && !Contains("feature_map"));
}

TEST_CASE("the effective configuration of every variant reads back to itself") {
  const std::string variant = GENERATE(from_range(attention::names()));
  CAPTURE(variant);
  for (const attention::OptionSet& options : attention::spec(variant).cases) {
    Config config = Config::parse("[data]\ntask = 'copy'\n", "c.toml");
    config.assign("attention.type=" + variant);
    attention::Config with{.heads = 4, .head_dim = 16, .max_length = 64};
    for (const auto& [key, value] : options) with.options.set(key, value);
    if (attention::capabilities(variant, with).causal_only) config.assign("model.causal=true");
    for (const bool given : {false, true}) {
      if (given)
        for (const auto& [key, value] : options) config.assign("attention", key, value, "test");
      const auto task = read_task_info(config);
      const std::string text = effective_config(config, &*task);
      CHECK(effective_config(Config::parse(text, "again.toml"), &*task) == text);
    }
  }
}

TEST_CASE("the seeds of data and of training are separate") {
  Config config = Config::parse("[data]\ntask = 'copy'\n[train]\nseed = 3\n", "c.toml");
  const auto hash = [&] { return data::content_hash(*read_task(config).train, 10); };
  const std::string zero = hash();
  config.assign("train.seed=5");
  CHECK(hash() == zero);
  config.assign("data.seed=4");
  CHECK(hash() != zero);
  config.assign("data.seed=0");
  CHECK(hash() == zero);
}

TEST_CASE("the effective configuration holds the absolute path of the data") {
  const Config config =
      Config::parse("[data]\ntask = 'tokens'\npath = 'some/../none.h5'\n", "c.toml");
  EffectiveValues values;
  read_task_info(config, &values);
  CHECK(values.at("path").value ==
        OptionValue((std::filesystem::current_path() / "none.h5").string()));
  const Config source =
      Config::parse("[data]\ntask = 'copy'\n[train]\ninit_from = 'some/../none'\n", "c.toml");
  const auto task = read_task_info(source);
  CHECK_THAT(effective_config(source, &*task),
             Catch::Contains("init_from = \"" +
                             (std::filesystem::current_path() / "none").string() + "\""));
}

TEST_CASE("a run that is only evaluated needs the memory of an evaluation") {
  const Config config = Config::parse(
      "[model]\nd_model = 64\nheads = 2\nlayers = 8\n[data]\ntask = 'copy'\nlength = 512\n"
      "count = 100\ntrain_size = 64\nvalidation_size = 2\ntest_size = 2\n"
      "[train]\nbatch_size = 64\neval_batch_size = 1\nmemory_limit = 0.5\n",
      "c.toml");
  CHECK_THROWS_WITH(Experiment(config), Contains("has 512 MiB"));
  CHECK_NOTHROW(Experiment(config, data::Splits::only("test")));
  Config many = config;
  many.assign("train.batch_size=1");
  many.assign("train.eval_batch_size=2147483647");
  CHECK_NOTHROW(Experiment(many));
  CHECK_NOTHROW(Experiment(many, data::Splits::only("test")));
  many.assign("data.validation_size=4096");
  CHECK_THROWS_WITH(Experiment(many),
                    Contains("train.eval_batch_size = 2,147,483,647 (all 4,096 examples) x 512"));
}

TEST_CASE("a model that is too large for any data is refused before the data are read") {
  // With a single token, class and position: linear layers of 2,102,784 numbers with their
  // norms, an embedding and a position of 512 each, and 1,537 of the head.
  const Config config = Config::parse(
      "[model]\nd_model = 512\nheads = 2\nlayers = 1\n[data]\ntask = 'tokens'\n"
      "path = 'none.h5'\n[train]\nmemory_limit = 0.01\n",
      "c.toml");
  CHECK_THAT(message_of<ConfigError>([&] { Experiment e(config); }),
             Contains("2,105,345 parameters with gradients and optimizer state need "));
}

TEST_CASE("logits are computed where targets count, if at most half of them do") {
  attention::TransformerConfig shape;
  shape.vocabulary = shape.classes = 5, shape.max_length = 4, shape.per_token = true;
  attention::Transformer model(nn::root(), shape);
  const LogitsFn logits = logits_of(model);
  const auto predicted = [&](int64_t counted) {
    Tensor targets = Tensor::empty({2, 4}, DType::i32);
    targets.fill(data::ignore_index);
    for (int64_t i = 0; i < counted; ++i) targets.data<int32_t>()[7 - i] = 3;
    const Prediction p = logits({Tensor::zeros({2, 4}, DType::i32), targets, {}}, {});
    CHECK(p.logits.value().size(-1) == 5);
    CHECK(p.logits.value().numel() == 5 * p.targets.numel());
    return p.targets.shape();
  };
  CHECK(predicted(0) == Shape{2, 4});
  CHECK(predicted(1) == Shape{1});
  CHECK(predicted(4) == Shape{4});
  CHECK(predicted(5) == Shape{2, 4});
}

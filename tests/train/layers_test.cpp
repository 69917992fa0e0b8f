// A different attention variant in each layer: options, checks, decoding, bench.
#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/bench.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;

namespace {

Config mixed(const std::string& attention, const std::vector<std::string>& assignments = {}) {
  Config config = Config::parse(
      "[model]\nd_model = 16\nheads = 2\nlayers = 2\nd_mlp = 16\nvocabulary = 7\nclasses = 7\n"
      "per_token = true\nmax_length = 12\ncausal = true\n" +
          attention,
      "c.toml");
  for (const std::string& assignment : assignments) config.assign(assignment);
  return config;
}

const std::string window_linear = "[attention]\ntype = ['window', 'linear']\nwindow = 3\n";

std::string error_of_layers(const std::string& attention,
                            const std::vector<std::string>& assignments = {}) {
  return message_of<ConfigError>([&] { read_model(mixed(attention, assignments), nullptr); });
}

}  // namespace

TEST_CASE("layers: each has its variant, with the options that it declares") {
  const auto shape = read_model(mixed(window_linear), nullptr);
  CHECK(shape.attention_of(0) == "window");
  CHECK(shape.attention_of(1) == "linear");
  CHECK(shape.attention_name() == "window, linear");
  // Of both layers, but for the one that has its own.
  const Config config = mixed(
      "[attention]\ntype = 'window'\nwindow = 3\nglobal_tokens = 1\n[attention.1]\nwindow = 5\n");
  EffectiveSections values;
  const auto windows = read_model(config, nullptr, &values);
  const auto option = [&](int64_t layer, const char* key) {
    return windows.attention_config(layer).options.find(key)->value;
  };
  CHECK(option(0, "window") == OptionValue(int64_t{3}));
  CHECK(option(1, "window") == OptionValue(int64_t{5}));
  CHECK(option(1, "global_tokens") == OptionValue(int64_t{1}));
  const std::string text = to_toml(values);
  CHECK_THAT(text, Contains("0.window = 3\n") && Contains("1.window = 5\n") &&
                       Contains("type = \"window\"\n") && !Contains("\nwindow"));
  const Config again = Config::parse(text, "again.toml");
  EffectiveSections read_again;
  read_model(again, nullptr, &read_again);
  CHECK(to_toml(read_again) == text);
}

TEST_CASE("layers: errors name the layer, the variant and the place") {
  CHECK_THAT(error_of_layers("[attention]\ntype = ['window', 'linear', 'linear']\n"),
             Contains("c.toml:12:1: attention.type") && Contains("one for each of 2 layers"));
  CHECK_THAT(error_of_layers(window_linear, {"attention.windwo=3"}),
             Contains("did you mean window?"));
  CHECK_THAT(error_of_layers(window_linear, {"attention.1.window=3"}),
             Contains("--set: attention.1.window: unknown option"));
  CHECK_THAT(error_of_layers(window_linear + "[attention.0]\nwindow = 5\n"),
             Contains("c.toml:13:1: attention.window = 3: this value has no effect: every layer"));
  CHECK_THAT(error_of_layers(window_linear, {"attention.window=-1"}),
             Contains("layer 0 (window): --set: attention.window = -1"));
  CHECK_THAT(error_of_layers("[attention]\ntype = ['linear', 'nystrom']\n"),
             Contains("layer 1 (nystrom)") && Contains("causal"));
  CHECK_THAT(error_of_layers("[attention]\ntype = ['window', 'liner']\n"),
             Contains("did you mean linear?"));
  CHECK_THAT(message_of<ConfigError>([] { Config::parse("[model.1]\nx = 1\n", "c.toml"); }),
             Contains("model.1"));
}

TEST_CASE("layers: an option that was replaced says by what, for one layer or all") {
  const std::string efficient = "type = \"efficient\"";
  const std::string types = "[attention]\ntype = ['performer', 'linear']\n";
  CHECK_THAT(error_of_layers(types, {"attention.projection=none"}),
             Contains("--set: attention.projection = \"none\": performer has no such option") &&
                 Contains(efficient));
  CHECK_THAT(error_of_layers(types, {"attention.0.projection=none"}),
             Contains("--set: attention.0.projection = \"none\": performer has no such option") &&
                 Contains(efficient));
  CHECK_THAT(error_of_layers(types, {"attention.1.projection=none"}), Contains("unknown option"));
}

TEST_CASE("layers: options of a type that was replaced are ignored if no layer takes them") {
  Config config = mixed(
      "[attention]\ntype = 'nystrom'\nwindow = 3\nlandmarks = 4\n[attention.1]\nwindow = 5\n");
  config.assign("attention", "type", std::vector<std::string>{"linear", "window"}, "test");
  EffectiveSections values;
  read_model(config, nullptr, &values);
  // The second layer takes its own window, not that of all layers.
  CHECK(config.ignored(values) ==
        std::vector<std::string>{"attention.landmarks", "attention.window"});
  config.erase("attention", "1.window");
  values.clear();
  read_model(config, nullptr, &values);
  CHECK(config.ignored(values) == std::vector<std::string>{"attention.landmarks"});
}

TEST_CASE("layers: token by token gives the logits of the whole sequence") {
  attention::Transformer model(nn::root(DType::f64, 1), read_model(mixed(window_linear), nullptr));
  Tensor tokens = Tensor::empty({2, 12}, DType::i32);
  for (int32_t i = 0; i < 24; ++i) tokens.data<int32_t>()[i] = i * 5 % 7;
  const Tensor whole = model.forward(tokens, {}, {}).value();
  attention::TransformerDecoder decoder(model, 2);
  for (int64_t i = 0; i < 12; ++i) {
    const Tensor row = decoder.step(tokens.select(1, i).contiguous());
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t c = 0; c < 7; ++c)
        CHECK(row.at({b, c}) == Approx(whole.at({b, i, c})).margin(1e-12));
  }
}

TEST_CASE("layers: a bench of a step adds the work of each") {
  const BenchOptions once{.repetitions = 1};
  const auto flops = [&](const std::string& types) {
    return bench_step(mixed("[attention]\ntype = " + types + "\n"), 1, once).work.total().flops;
  };
  CHECK(2 * flops("['softmax', 'linear']") == flops("'softmax'") + flops("'linear'"));
  CHECK_THROWS_AS(bench_attention(mixed(window_linear), 1, once), ConfigError);
}

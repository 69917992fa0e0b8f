// The registry.
#include "longhand/attention/registry.h"

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

struct ItselfOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {.causal = true, .cross_lengths = false, .time = "N D", .memory = "1"};
  }
};

// Each token attends only to itself.
class Itself final : public Variant {
 public:
  Itself(const nn::Scope& scope_, const Config& config, const ItselfOptions&)
      : Variant(scope_, config) {}
  Work work(int64_t, int64_t) const override { return {}; }

 private:
  Variable attend(const Inputs& inputs, const Mask&, const nn::Pass&) override { return inputs.v; }
};

Spec itself() {
  return make_spec<ItselfOptions, Itself>({.summary = "the value itself", .paper = "-"});
}

Config configured(const OptionSet& options) {
  Config config{.heads = 2, .head_dim = 4, .max_length = 16};
  for (const auto& [key, value] : options) config.options.set(key, value, "run.toml:3:1");
  return config;
}

}  // namespace

TEST_CASE("registry: names in order, specs filled in") {
  const auto& list = library;
  REQUIRE(list.size() >= 6);
  CHECK(std::vector<std::string>(list.begin(), list.begin() + 6) ==
        std::vector<std::string>{"softmax", "linformer", "performer", "efficient", "nystrom",
                                 "linear"});
  for (const std::string& name : list) {
    INFO(name);
    CHECK_FALSE(spec(name).summary.empty());
    CHECK_FALSE(spec(name).paper.empty());
    const Capabilities can = capabilities(name);
    CHECK_FALSE(can.time.empty());
    CHECK_FALSE(can.memory.empty());
    CHECK_FALSE(can.state.empty());
    CHECK(can.causal == can.causal_reason.empty());
    for (const Field& field : spec(name).options) {
      INFO(field.name);
      CHECK_FALSE(field.meaning.empty());
      CHECK_FALSE(field.default_value.empty());
    }
  }
  CHECK(capabilities("softmax").exact);
  CHECK(capabilities("linformer").fixed_length);
}

TEST_CASE("registry: capabilities follow the options, and nothing is constructed for them") {
  CHECK_FALSE(capabilities("softmax", configured({{"scale", 0.5}})).exact);
  CHECK(capabilities("linear", configured({{"feature_map", "cosformer"}})).positional);
  CHECK_FALSE(capabilities("performer", configured({{"eps", 1e-4}})).decodes);
  CHECK_FALSE(capabilities("lowrank", configured({{"softmax", true}})).decodes);
  CHECK(capabilities("nystrom", configured({{"landmark_kind", "random"}})).random);
  CHECK(capabilities("linformer", configured({{"order", "inputs"}})).shortens);
  // A projection of 2^40 numbers.
  Config large = configured({{"k", int64_t{1} << 20}});
  large.max_length = int64_t{1} << 20;
  CHECK_NOTHROW(check_options("linformer", large));
  large.causal = true;
  CHECK_THROWS_WITH(check_options("linformer", large),
                    Catch::Contains("causal attention is impossible"));
  const Capabilities can = capabilities("rff", configured({{"guard", "add"}}));
  const auto variant = make("rff", nn::root(), configured({{"guard", "add"}}));
  CHECK(variant->capabilities().averages == can.averages);
}

TEST_CASE("registry: options that do not apply name the place and the condition") {
  const auto message = [](const std::string& name, const OptionSet& options) {
    try {
      check_options(name, configured(options));
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message("linear", {{"dropout", 0.1}}) ==
        "run.toml:3:1: attention.dropout = 0.1: linear has no attention probabilities to drop");
  CHECK(message("lowrank", {{"dropout", 0.1}}) ==
        "run.toml:3:1: attention.dropout = 0.1: this option applies only with softmax = true");
  CHECK(message("lowrank", {{"softmax", true}, {"dropout", 0.1}}).empty());
  CHECK_THAT(message("softmax", {{"dropout", 1.0}}),
             Catch::Contains("attention.dropout = 1.0") && Catch::Contains("below 1"));
  CHECK_THAT(message("performer", {{"projection", "none"}}),
             Catch::Contains("attention.projection") && Catch::Contains("type = \"efficient\""));
  CHECK_THAT(message("gaussian", {{"landmarks", int64_t{8}}}),
             Catch::Contains("attention.landmarks = 8") && Catch::Contains("type = \"skyformer\""));
  CHECK_THAT(message("linformer", {{"projection", "mean_pool"}, {"freeze", true}}),
             Catch::Contains("attention.freeze") && Catch::Contains("applies only with"));
  CHECK_THAT(message("nystrom", {{"pinv", "svd"}, {"pinv_iterations", int64_t{3}}}),
             Catch::Contains("pinv = \"iterative\""));
  // Options in a file for a variant that the command line replaced belong to no variant.
  Config optional = configured({});
  optional.options.set("dropout", 0.1, "", true);
  CHECK_NOTHROW(check_options("linear", optional));
}

TEST_CASE("registry: the options that apply are returned as they were read") {
  const EffectiveValues values = check_options("lowrank", configured({{"rank", int64_t{3}}}));
  CHECK(values.at("rank").value == OptionValue(int64_t{3}));
  CHECK(values.at("rank").given);
  CHECK(values.at("softmax").value == OptionValue(false));
  CHECK_FALSE(values.at("softmax").given);
  CHECK_FALSE(values.contains("dropout"));  // only with softmax = true
}

TEST_CASE("registry: an unknown name lists the known ones and the nearest") {
  CHECK_THROWS_AS(capabilities("perfomer"), ConfigError);
  CHECK_THROWS_WITH(make("perfomer", nn::root(), {}),
                    Catch::Contains("\"perfomer\"") &&
                        Catch::Contains("did you mean \"performer\"") &&
                        Catch::Contains("nystrom") && Catch::Contains("softmax"));
  CHECK_THROWS_WITH(make("xyzzy", nn::root(), {}), !Catch::Contains("did you mean"));
}

TEST_CASE("registry: sizes below 1 are refused") {
  CHECK_THROWS_AS(make("softmax", nn::root(), {.heads = 0}), ConfigError);
  CHECK_THROWS_AS(make("softmax", nn::root(), {.head_dim = 0}), ConfigError);
  CHECK_THROWS_AS(make("softmax", nn::root(), {.max_length = 0}), ConfigError);
}

TEST_CASE("registry: options of variants are checked, unknown ones refused") {
  const auto with = [](const std::string& name, const std::string& key, const OptionValue& value) {
    Options options("attention");
    options.set(key, value);
    make_variant(name, {}, options);
  };
  CHECK_NOTHROW(with("linformer", "sharing", std::string("kv")));
  CHECK_THROWS_AS(with("linformer", "sharing", std::string("layer")), ConfigError);
  CHECK_THROWS_AS(with("linformer", "k", int64_t{0}), ConfigError);
  CHECK_THROWS_AS(with("performer", "features", int64_t{-3}), ConfigError);
  CHECK_THROWS_AS(with("performer", "kernel", std::string("gauss")), ConfigError);
  CHECK_THROWS_AS(with("performer", "draw", std::string("haar")), ConfigError);
  CHECK_THROWS_AS(with("performer", "redraw_interval", int64_t{-1}), ConfigError);
  CHECK_THROWS_AS(with("performer", "eps", -1e-4), ConfigError);
  CHECK_THROWS_AS(with("nystrom", "landmarks", int64_t{0}), ConfigError);
  CHECK_THROWS_AS(with("nystrom", "conv_kernel", int64_t{4}), ConfigError);
  CHECK_THROWS_AS(with("nystrom", "pinv_iterations", -1.0), ConfigError);
  CHECK_THROWS_WITH(with("nystrom", "landmark", int64_t{8}), Catch::Contains("landmarks"));
  CHECK_THROWS_AS(with("softmax", "features", int64_t{8}), ConfigError);
}

TEST_CASE("registry: a variant from outside") {
  CHECK_THROWS_AS(add("softmax", itself()), ConfigError);
  const Spec& held = spec("softmax");
  add("itself", itself());
  CHECK_THROWS_AS(add("itself", itself()), ConfigError);
  CHECK(&held == &spec("softmax"));
  CHECK_THROWS_WITH(add("half", {.summary = "half", .paper = "-"}), Catch::Contains("make_spec"));
  CHECK(names().back() == "itself");
  const auto variant = make_variant("itself");
  const Tensor x = normal({2, 3, 2, 4}, 1);
  const Tensor out =
      variant->forward(Variable(x), Variable(x), Variable(x), lengths({3, 1}), {}).value();
  CHECK(identical(one(out, 0, 3).contiguous(), one(x, 0, 3).contiguous()));
  CHECK(all_zero(out.slice(0, 1, 2).slice(1, 1, 3)));
}

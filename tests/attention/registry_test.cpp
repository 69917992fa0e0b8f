// The registry.
#include "longhand/attention/registry.h"

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

// Attends to nothing but itself.
class Itself final : public Variant {
 public:
  using Variant::Variant;

 private:
  Variable attend(const Variable&, const Variable&, const Variable& v, const Mask&,
                  const nn::Pass&) override {
    return v;
  }
};

Registration itself() {
  return {{.summary = "the value itself",
           .causal = true,
           .cross_lengths = false,
           .time = "N D",
           .memory = "1",
           .state = "-",
           .paper = "-"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Itself>(scope, config);
          }};
}

}  // namespace

TEST_CASE("registry: names in order, traits filled in") {
  const auto& list = library;
  REQUIRE(list.size() >= 6);
  CHECK(std::vector<std::string>(list.begin(), list.begin() + 6) ==
        std::vector<std::string>{"softmax", "linformer", "performer", "nystrom", "linear", "rff"});
  for (const std::string& name : list) {
    INFO(name);
    const Traits& t = traits(name);
    CHECK_FALSE(t.summary.empty());
    CHECK_FALSE(t.time.empty());
    CHECK_FALSE(t.memory.empty());
    CHECK_FALSE(t.state.empty());
    CHECK_FALSE(t.paper.empty());
    CHECK(t.causal == t.causal_reason.empty());
  }
  CHECK(traits("softmax").exact);
  CHECK(traits("linformer").fixed_length);
}

TEST_CASE("registry: an unknown name lists the known ones and the nearest") {
  CHECK_THROWS_AS(traits("perfomer"), ConfigError);
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

TEST_CASE("registry: options of variants are checked, unknown ones are left over") {
  const auto with = [](const std::string& name, const std::string& key, const OptionValue& value) {
    Options options("attention");
    options.set(key, value);
    make_variant(name, {}, options);
    options.check_all_read();
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
  const Traits& held = traits("softmax");
  add("itself", itself());
  CHECK_THROWS_AS(add("itself", itself()), ConfigError);
  CHECK(&held == &traits("softmax"));
  CHECK(names().back() == "itself");
  const auto variant = make_variant("itself");
  const Tensor x = normal({2, 3, 2, 4}, 1);
  const Tensor out =
      variant->forward(Variable(x), Variable(x), Variable(x), lengths({3, 1}), {}).value();
  CHECK(identical(one(out, 0, 3).contiguous(), one(x, 0, 3).contiguous()));
  CHECK(all_zero(out.slice(0, 1, 2).slice(1, 1, 3)));
}

// The interface of every variant: the conformance suite, and properties that it does not check.
#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "longhand/attention/conformance/conformance.h"
#include "longhand/attention/conformance/tools.h"
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/model/transformer.h"
#include "tests/attention/attention_check.h"
#include "tests/support/lower_sets.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

using Attend = Variable (*)(const Variable& q, const Variable& k, const Variable& v,
                            const Mask& mask);

template <bool causal>
struct BrokenOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const { return {.causal = causal, .causal_reason = "it is broken"}; }
};

// A broken variant, given by its result out(b, i) from all tokens of q, k and v.
template <Attend f, bool causal>
struct Broken final : Variant {
  Broken(const nn::Scope& scope_, const Config& config, const BrokenOptions<causal>&)
      : Variant(scope_, config) {}
  Work work(int64_t, int64_t) const override { return {}; }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    return f(inputs.q, inputs.k, inputs.v, mask);
  }
};

// The checks that fail for a variant that computes f.
template <Attend f, bool causal = false>
std::set<std::string> failing(const std::string& name) {
  add(name,
      make_spec<BrokenOptions<causal>, Broken<f, causal>>({.summary = "broken", .paper = "-"}));
  std::set<std::string> out;
  for (const CheckResult& result : check_invariants(name, {}))
    if (!result.passed()) out.insert(result.check);
  return out;
}

Variable average(const Variable&, const Variable&, const Variable& v, const Mask&) {
  return broadcast_to(mean(v, {1}, true), v.shape());  // includes padding and future tokens
}
Variable by_batch(const Variable& q, const Variable&, const Variable& v, const Mask&) {
  return v * max(reshape(q, {q.value().numel()}), 0, true);
}
Variable not_a_number(const Variable&, const Variable&, const Variable& v, const Mask&) {
  return v / sum(v * 0.0 + 1.0, {1}, true) * Variable(Tensor::full({}, NAN, v.dtype()));
}

}  // namespace

// Every fourth variant each, so that ctest runs them at the same time.
TEMPLATE_TEST_CASE_SIG("variants: the conformance suite holds", "", ((size_t first), first), 0, 1,
                       2, 3) {
  for (size_t i = first; i < library.size(); i += 4) DYNAMIC_SECTION(library[i]) {
      const std::string& name = library[i];
      const auto results = check_conformance(name);
      CHECK(results.size() >= invariants().size());
      for (const CheckResult& result : results) {
        INFO(result.variant << " / " << result.check);
        CHECK(result.failures == std::vector<std::string>{});
      }
    }
}

// Run by the test below.
TEST_CASE("variants: long sums", "[.long-sums]") {
  for (const std::string& name : library)
    for (const CheckResult& result :
         check_invariants(name, spec(name).cases[0], {.checks = {"long-sums"}})) {
      INFO(result.variant);
      CHECK(result.failures == std::vector<std::string>{});
    }
}
TEST_CASE("variants: long sums on lower instruction sets") {
  check_on_lower_sets("[.long-sums],tiled attention: precise*");
}

TEST_CASE("conformance: broken variants are caught, by the checks that are about it") {
  CHECK(failing<average>("test: average") ==
        std::set<std::string>{"cross-lengths", "long-sums", "padding", "values"});
  CHECK(failing<average, true>("test: causal average").count("causality"));
  CHECK(failing<by_batch>("test: by batch").count("batch"));
  CHECK(failing<not_a_number>("test: NaN").count("nothing-to-attend"));
}

TEST_CASE("conformance: a function in the place of a variant is checked instead of it") {
  const auto failed = [](double factor, double tolerance) {
    const conformance::Substitution function(
        "softmax",
        [factor](Variant& variant) {
          variant.substitute([factor](const Inputs&, const Mask&, const Variable& result) {
            return result * factor;
          });
        },
        tolerance);
    std::set<std::string> out;
    for (const CheckResult& result :
         check_invariants("softmax", {}, {.checks = {"values", "exactness", "batch"}}))
      if (!result.passed()) out.insert(result.check);
    return out;
  };
  CHECK(failed(1, 0).empty());
  CHECK(failed(1.001, 0) == std::set<std::string>{"values", "exactness"});
  CHECK(failed(1.001, 0.01).empty());
  // It ends with the object.
  for (const CheckResult& result : check_invariants("softmax", {}, {.checks = {"exactness"}}))
    CHECK(result.passed());
  const conformance::Substitution one(
      "softmax", [](Variant&) {}, 0);
  CHECK_THROWS_AS(conformance::Substitution(
                      "linear", [](Variant&) {}, 0),
                  Error);
}

namespace {

// exp(q·k / sqrt(D)) without a normaliser, and the result of another scale.
Variable exponential_weights(const DefinitionInputs& in) {
  const Variable scores = matmul(permute(in.q, {0, 2, 1, 3}), permute(in.k, {0, 2, 3, 1}));
  return exp(scores / std::sqrt(static_cast<double>(in.q.size(3)))) *
         Variable(in.visible.to(scores.dtype()));
}
template <int scale>
Variable exponential(const Variable& q, const Variable& k, const Variable& v, const Mask& mask) {
  const Variable heads = permute(v, {0, 2, 1, 3});
  const Tensor visible = definitions::visible(q.size(1), k.size(1), {.lengths = mask.lengths});
  const Variable scores = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 3, 1}));
  const Variable weights = exp(scores * (scale / std::sqrt(static_cast<double>(q.size(3)))));
  return permute(matmul(weights * Variable(visible.to(v.dtype())), heads), {0, 2, 1, 3});
}
struct ExponentialOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const { return {.averages = false, .causal_reason = "a test"}; }
};
template <int scale>
struct Exponential final : Variant {
  Exponential(const nn::Scope& scope_, const Config& config, const ExponentialOptions&)
      : Variant(scope_, config) {}
  Work work(int64_t, int64_t) const override { return {}; }

 private:
  Variable attend(const Inputs& inputs, const Mask& mask, const nn::Pass&) override {
    return exponential<scale>(inputs.q, inputs.k, inputs.v, mask);
  }
};

}  // namespace

TEST_CASE("conformance: a variant is compared with its definition, if it has one") {
  const auto add_as = [](const std::string& name, Spec spec, auto weights) {
    spec.weights = weights;
    add(name, spec);
  };
  const Spec right = make_spec<ExponentialOptions, Exponential<1>>({.summary = "-", .paper = "-"});
  const Spec wrong = make_spec<ExponentialOptions, Exponential<2>>({.summary = "-", .paper = "-"});
  add_as("test: right", right, exponential_weights);
  add_as("test: wrong", wrong, exponential_weights);
  add_as("test: unknown", wrong, nullptr);
  const ConformanceOptions only{.checks = {"definition"}};
  const auto found = check_conformance("test: right", only);
  REQUIRE(found.size() == 1);
  CHECK(found[0].failures == std::vector<std::string>{});
  const auto failed = check_conformance("test: wrong", only);
  REQUIRE(failed.size() == 1);
  REQUIRE_FALSE(failed[0].passed());
  CHECK_THAT(failed[0].failures[0],
             Catch::Contains("1 and 1 tokens: compared with the definition"));
  CHECK(check_conformance("test: unknown", only).empty());
  CHECK(evidence("test: right").size() == 1);
  CHECK(not_checked("test: right").empty());
  CHECK(not_checked("softmax").empty());
  CHECK_THAT(not_checked("test: unknown"),
             Catch::Contains("no check compares it with its formula"));
}

TEST_CASE("conformance: decoding that is declared and not there is told") {
  struct NoOptions {
    void describe(OptionVisitor&) {}
    Capabilities capabilities() const { return {.causal = true, .decodes = true}; }
  };
  struct Undecided final : Variant {
    Undecided(const nn::Scope& scope_, const Config& config, const NoOptions&)
        : Variant(scope_, config) {}
    Work work(int64_t, int64_t) const override { return {}; }

   private:
    Variable attend(const Inputs& inputs, const Mask&, const nn::Pass&) override {
      return inputs.v;
    }
  };
  add("test: undecided", make_spec<NoOptions, Undecided>({.summary = "undecided", .paper = "-"}));
  const auto variant = make_variant("test: undecided", {.causal = true});
  CHECK_THROWS_WITH(variant->decoder(1),
                    "test: undecided: declares \"decodes\" but does not override make_decoder()");
}

namespace {

struct GateOptions {
  void describe(OptionVisitor&) {}
  Capabilities capabilities() const {
    return {.averages = false,
            .positional = true,
            .causal = true,
            .causal_only = true,
            .decodes = true,
            .uses_x = true};
  }
};

// out_i = sigmoid(x_i Wᵀ) q_i ∘ sum_(j<=i) k_j ∘ v_j, with a gate of each head.
class Gated final : public Variant {
 public:
  Gated(const nn::Scope& scope_, const Config& config, const GateOptions&)
      : Variant(scope_, config),
        gate_(scope("gate"), config.heads * config.head_dim, config.heads) {}
  Work work(int64_t, int64_t) const override { return {}; }

  std::unique_ptr<Decoder> make_decoder(int64_t) const override {
    struct Sum final : Decoder {
      explicit Sum(const Gated& variant) : of(variant) {}
      Tensor step(const Token& t) override {
        const Variable added = Variable(t.k) * Variable(t.v);
        sum = (sum ? Variable(sum) + added : added).value();
        return of
            .gated(Variable(t.x.unsqueeze(1)),
                   Variable(t.q.unsqueeze(1)) * Variable(sum.unsqueeze(1)))
            .value()
            .squeeze(1);
      }
      int64_t bytes() const override { return sum.numel() * 8; }
      const Gated& of;
      Tensor sum;
    };
    return std::make_unique<Sum>(*this);
  }

 private:
  Variable gated(const Variable& x, const Variable& y) const {
    return y * unsqueeze(sigmoid(gate_.forward(x)), 3);
  }
  Variable attend(const Inputs& in, const Mask&, const nn::Pass&) override {
    return gated(in.x, in.q * cumsum(in.k * in.v, 1));
  }

  nn::Linear gate_;
};

}  // namespace

TEST_CASE("variants: a gate reads the tokens that q, k and v were projected from") {
  static const bool added =
      (add("test: gated", make_spec<GateOptions, Gated>({.summary = "gated", .paper = "-"})), true);
  REQUIRE(added);
  for (const CheckResult& result : check_invariants("test: gated", {})) {
    INFO(result.variant << " / " << result.check);
    CHECK(result.failures == std::vector<std::string>{});
  }
  CHECK_THROWS_WITH(make_variant("test: gated"), Catch::Contains("causal only"));
  const auto alone = make_variant("test: gated", {.causal = true});
  const Variable q(normal({1, 3, 2, 4}, 1));
  CHECK_THROWS_WITH(alone->forward(q, q, q, {}, {}),
                    Catch::Contains("reads the tokens x") && Catch::Contains("none"));
  // In a model, x is normalised if a norm precedes attention.
  const std::string norm = GENERATE(as<std::string>(), "pre", "post");
  TransformerConfig config{.vocabulary = 7, .classes = 7, .per_token = true, .max_length = 9};
  config.d_model = 8;
  config.causal = true;
  config.norm = norm;
  config.attention = "test: gated";
  Transformer model(nn::root(DType::f64, 3), config);
  const Tensor tokens = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 0, 1, 2}, {1, 9});
  check_parameters(model, [&] { return model.forward(tokens, {}, {}); });
  const Tensor whole = model.forward(tokens, {}, {}).value();
  TransformerDecoder decoder(model, 1);
  for (int64_t i = 0; i < 9; ++i)
    CHECK(near(decoder.step(tokens.select(1, i).contiguous()), whole.select(1, i), 1e-12));
}

TEST_CASE("conformance: unknown names are refused") {
  CHECK_THROWS_AS(check_conformance("sofmax"), ConfigError);
  CHECK_THROWS_WITH(check_invariants("softmax", {}, {.checks = {"paddin"}}),
                    Catch::Contains("did you mean \"padding\""));
  CHECK_THROWS_WITH(check_invariants("linformer", {{"kk", 3}}), Catch::Contains("kk"));
}

TEST_CASE("variants: wrong shapes and lengths are refused") {
  const auto variant = make_variant("softmax");
  const auto v = [](const Shape& shape, DType dtype = DType::f64) {
    return Variable(Tensor::zeros(shape, dtype));
  };
  const Shape good{2, 5, 2, 4};
  const auto forward = [&](const Variable& q, const Variable& k, const Variable& w,
                           const Mask& mask = {}) { return variant->forward(q, k, w, mask, {}); };
  CHECK_NOTHROW(forward(v(good), v(good), v(good)));
  CHECK_THROWS_AS(forward(v({2, 5, 8}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 5, 3, 4}), v({2, 5, 3, 4}), v({2, 5, 3, 4})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 5, 2, 3}), v({2, 5, 2, 3}), v({2, 5, 2, 3})), ShapeError);
  CHECK_THROWS_AS(forward(v({1, 5, 2, 4}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v({2, 4, 2, 4})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 0, 2, 4}), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good, DType::f32), v(good), v(good)), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5, 6})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5, -1})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), lengths({5})), ShapeError);
  CHECK_THROWS_AS(forward(v({2, 3, 2, 4}), v(good), v(good), lengths({5, 5})), ShapeError);
  CHECK_THROWS_AS(forward(v(good), v(good), v(good), {Tensor::zeros({2}, DType::i64)}), ShapeError);
  const auto masked = [&](const Mask& mask, const std::string& name = "softmax") {
    const auto one = make_variant(name);
    one->forward(v(good), v(good), v(good), mask, {});
  };
  CHECK_NOTHROW(masked({.keep = Tensor::full({5, 5}, 1, DType::u8)}));
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 5}, 1, DType::i32)}), ShapeError);
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 4}, 1, DType::u8)}), ShapeError);
  CHECK_THROWS_AS(masked({.bias = v({2, 3, 5, 5})}), ShapeError);
  CHECK_THROWS_AS(masked({.bias = v({5, 5}, DType::f32)}), ShapeError);
  CHECK_THROWS_AS(masked({.keep = Tensor::full({5, 5}, 1, DType::u8)}, "performer"), ConfigError);
  CHECK_THROWS_AS(masked({.bias = v({5, 5})}, "nystrom"), ConfigError);
  const auto causal = make_variant("softmax", {.causal = true});
  CHECK_THROWS_AS(causal->forward(v({2, 3, 2, 4}), v(good), v(good), {}, {}), ShapeError);
}

// test_attention "[table]" prints the table of attention/README.md: the least q and k of s N(0, 1) at which a
// row of 256 causal tokens vanishes, in steps of a fourth root of 2, D = 64.
TEST_CASE("the norms at which rows vanish", "[.][table]") {
  const auto first = [](const char* variant, const OptionSet& options, DType dtype) -> double {
    const conformance::Made made{
        .heads = 1, .dim = 64, .max_length = 256, .causal = true, .dtype = dtype};
    const auto made_variant = conformance::make_variant(variant, options, made);
    for (double std = 1; std <= 512; std *= std::pow(2, 0.25)) {
      const auto x = [&](uint64_t seed, double deviation) {
        return Variable(conformance::normal({1, 256, 1, 64}, seed, DType::f32, deviation).to(dtype),
                        true);
      };
      const Inputs in{x(1, std), x(2, std), x(3, 1), {}};
      made_variant->forward(in, {}, nn::Pass::train(Generator(1)));
      const auto metrics = made_variant->metrics();
      const auto rows = metrics.find("nonpositive_normalizers");
      if (rows == metrics.end()) break;  // the map's normalisers are positive by their form
      if (rows->second > 0) return std;
    }
    return std::numeric_limits<double>::infinity();
  };
  for (const auto& [variant, options] : std::vector<std::pair<const char*, OptionSet>>{
           {"performer", {}},
           {"performer", {{"kernel", std::string("hyperbolic")}}},
           {"performer", {{"kernel", std::string("optimal")}}},
           {"performer", {{"kernel", std::string("exp")}}},
           {"performer", {{"kernel", std::string("trigonometric")}}},
           {"rff", {}},
           {"scatterbrain", {}},
           {"linear", {}},
           {"linear", {{"feature_map", std::string("exp")}}},
           {"linear", {{"feature_map", std::string("hedgehog")}}},
           {"linear", {{"feature_map", std::string("relu")}}},
           {"linear", {{"feature_map", std::string("squared_relu")}}},
           {"linear", {{"feature_map", std::string("taylor2")}}},
           {"linear", {{"feature_map", std::string("cosformer")}}},
           {"linear", {{"feature_map", std::string("dpfp")}}},
           {"linear", {{"feature_map", std::string("rebased")}}},
           {"linear", {{"feature_map", std::string("t2r")}}}}) {
    std::string text = variant;
    for (const auto& [key, value] : options) text += " " + key + "=" + std::get<std::string>(value);
    std::printf("| %s | %.0f | %.0f |\n", text.c_str(), first(variant, options, DType::f32),
                first(variant, options, DType::f64));
  }
}

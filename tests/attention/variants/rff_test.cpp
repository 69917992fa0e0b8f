#include "longhand/attention/bases/feature_attention.h"
#include "longhand/autograd/recompute.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options rff(int64_t m, const std::string& kernel = "softmax",
            const std::string& waves = "sin_cos") {
  Options options("attention");
  options.set("features", m);
  options.set("kernel", kernel);
  options.set("waves", waves);
  if (kernel == "gaussian") options.set("sigma", 0.8);
  return options;
}

Row scaled(Row x, double scale) {
  for (double& value : x) value *= scale;
  return x;
}

// Returns the features of x by definition: ψ of the transformed x times the factor of the kernel.
// sigma belongs to this head.
Row features_of(const std::string& kernel, const nn::StateDict& state, const Row& x,
                const Row& sigma) {
  const double root = std::pow(static_cast<double>(x.size()), 0.25);  // project() divides by it
  Row y = x;
  if (kernel == "gaussian") y = scaled(x, 1 / 0.8);
  if (kernel == "rfa") y = scaled(x, root / std::sqrt(dot(x, x)));
  for (size_t d = 0; d < y.size() && kernel == "rfa"; ++d) y[d] *= sigma[d];
  const double factor = kernel == "softmax" ? std::exp(half_square(x)) : 1;
  const bool biased = state.count("phases");
  const Row b = biased ? state.at("phases").to_vector<double>() : Row();
  Row out;
  for (const double u : project(state.at("features"), y)) {
    if (biased) {
      out.push_back(factor * std::cos(u + b[out.size()]));
      continue;
    }
    out.push_back(factor * std::cos(u));
    out.push_back(factor * std::sin(u));
  }
  return out;
}

// Returns the number of normalisers that were not positive; the metric is their fraction.
int64_t count(attention::Variant& variant) {
  const auto counts = variant.state_dict().at("nonpositive_normalizers").to_vector<int64_t>();
  const double rate = variant.metrics().at("nonpositive_normalizers");
  CHECK(rate == (counts[1] ? static_cast<double>(counts[0]) / static_cast<double>(counts[1]) : 0));
  return counts[0];
}
int64_t count_of_all(attention::Variant& variant) {
  return variant.state_dict().at("nonpositive_normalizers").to_vector<int64_t>()[1];
}

}  // namespace

TEST_CASE("rff equals its N x N form") {
  const std::string kernel = GENERATE(as<std::string>(), "softmax", "gaussian", "rfa");
  const std::string waves = GENERATE(as<std::string>(), "sin_cos", "cos_bias");
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO(kernel << " " << waves << " causal " << causal << " N " << N << " lengths "
              << mask.lengths.defined());
  const Tensor q = normal({2, N, 1, 4}, 1), k = normal({2, N, 1, 4}, 2),
               v = normal({2, N, 1, 4}, 3);
  const auto variant =
      make_variant("rff", {.heads = 1, .max_length = N, .causal = causal}, rff(60, kernel, waves));
  nn::StateDict state = variant->state_dict();
  Row sigma(4, 1);
  if (kernel == "rfa") {
    copy_into(state.at("sigma"), Tensor::from(std::vector<double>{0.3, 0.9, 0.6, 0.5}, {1, 4}));
    sigma = state.at("sigma").to_vector<double>();
  }
  const auto features = [&](const Row& x) { return features_of(kernel, state, x, sigma); };
  CHECK(near(forward(*variant, q, k, v, mask),
             naive_kernel_attention(q, k, v, dot, causal, mask, features), 1e-9));
}

TEST_CASE("rff: gradients of every kernel") {
  const std::string kernel = GENERATE(as<std::string>(), "softmax", "gaussian", "rfa");
  const std::string waves = GENERATE(as<std::string>(), "sin_cos", "cos_bias");
  const bool causal = GENERATE(false, true);
  INFO(kernel << " " << waves << " causal " << causal);
  const auto variant = make_variant("rff", {.dim = 3, .causal = causal}, rff(60, kernel, waves));
  const Mask mask = lengths({9, 5});
  const Tensor q = normal({2, 9, 2, 3}, 1), k = normal({2, 9, 2, 3}, 2),
               v = normal({2, 9, 2, 3}, 3);
  if (kernel == "rfa") variant->state_dict().at("sigma").fill(0.6);
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {q, k, v});
  INFO(report);
  CHECK(report.ok);
  check_parameters(
      *variant, [&] { return variant->forward(Variable(q), Variable(k), Variable(v), mask, {}); });
}

TEST_CASE("rff approaches softmax as features grow") {
  const std::string waves = GENERATE(as<std::string>(), "sin_cos", "cos_bias");
  const Tensor q = normal({1, 24, 2, 4}, 1), k = normal({1, 24, 2, 4}, 2),
               v = normal({1, 24, 2, 4}, 3);
  const Tensor exact = forward(*make_variant("softmax", {.max_length = 24}), q, k, v);
  const auto variant = make_variant("rff", {.max_length = 24}, rff(8192, "softmax", waves));
  CHECK(near(forward(*variant, q, k, v), exact, waves == "sin_cos" ? 0.03 : 0.06));
}

TEST_CASE("rff: with zero frequencies, attention depends on norms only") {
  const auto variant = make_variant("rff", {}, rff(8));
  variant->state_dict().at("features").fill(0);
  const Tensor q = normal({1, 6, 2, 4}, 1), v = normal({1, 6, 2, 4}, 3);
  const Tensor equal = Tensor::full({1, 6, 2, 4}, 0.3, DType::f64);
  const Tensor average = broadcast_to(mean(Variable(v), {1}, true), {1, 6, 2, 4}).value();
  CHECK(near(forward(*variant, q, equal, v), average, 1e-14));
}

TEST_CASE("rff: rfa depends on directions only, and a zero token does not give NaN") {
  const auto variant = make_variant("rff", {}, rff(64, "rfa"));
  Tensor q = normal({1, 6, 2, 4}, 1);
  const Tensor k = normal({1, 6, 2, 4}, 2), v = normal({1, 6, 2, 4}, 3);
  const auto larger = [](const Tensor& x) { return affine(Variable(x), 50).value(); };
  CHECK(near(forward(*variant, larger(q), larger(k), v), forward(*variant, q, k, v), 1e-9));
  q.slice(1, 2, 3).fill(0);
  const Outcome o = run_variant(*variant, q, k, v, {}, normal({1, 6, 2, 4}, 4));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dq));
}

// Waves [cos u, sin u] of u = 0 (queries, q = 0) and u = W k: normalisers are sums of cosines.
TEST_CASE("rff: normalisers that are not positive are counted, and guarded on request") {
  const std::string guard = GENERATE(as<std::string>(), "none", "add", "clamp");
  const bool causal = GENERATE(false, true);
  INFO(guard << " causal " << causal);
  Options options = rff(1, "gaussian");
  options.set("sigma", 1.0);
  options.set("guard", guard);
  if (guard != "none") options.set("guard_eps", 0.25);
  const auto variant = make_variant("rff", {.heads = 1, .dim = 1, .causal = causal}, options);
  variant->state_dict().at("features").fill(1);
  const double pi = std::acos(-1.0);
  const Tensor q = Tensor::zeros({2, 3, 1, 1}, DType::f64), v = normal({2, 3, 1, 1}, 3);
  const Tensor k = Tensor::from(std::vector<double>{pi, 0.1, 0.2, 0, 0, pi}, {2, 3, 1, 1});
  const std::vector<std::vector<double>> cosines{{-1, std::cos(0.1), std::cos(0.2)}, {1, 1, -1}};
  const Mask mask{.lengths = with_layout(lengths({3, 2}).lengths, Layout::stride_2)};
  const nn::Pass training{.training = true};
  const Variable vq(q, true), vk(k, true), vv(v, true);
  const Variable result = variant->forward(vq, vk, vv, mask, training);
  int64_t expected = 0;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < (b ? 2 : 3); ++i) {
      double den = 0, num = 0;
      for (int64_t j = 0; j <= (causal ? i : b ? 1 : 2); ++j) {
        den += cosines[b][j];
        num += cosines[b][j] * v.at({b, j, 0, 0});
      }
      expected += den <= 0;
      if (guard == "add" && std::abs(den) <= 0.25) den += 0.5;
      if (guard == "clamp") den = std::max(den, 0.25);
      CHECK(result.value().at({b, i, 0, 0}) == Approx(num / den).epsilon(1e-10));
    }
  CHECK(expected == (causal ? 2 : 0));  // -1, and -1 + cos 0.1
  CHECK(count(*variant) == expected);
  CHECK(count_of_all(*variant) == 5);
  CHECK(variant->capabilities().averages == (guard == "none"));
  // Gradients with every guard, evaluation without counting.
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {q, k, v});
  INFO(report);
  CHECK(report.ok);
  CHECK(count(*variant) == expected);
  {
    const NoGrad no_grad;
    variant->forward(vq, vk, vv, mask, training);
  }
  CHECK(count(*variant) == expected);
  // A normaliser that is computed twice is counted once.
  const Variable again = recompute(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, training); },
      {vq, vk, vv});
  backward(again, Tensor::full(again.shape(), 1, DType::f64));
  CHECK(count(*variant) == 2 * expected);
  CHECK(count_of_all(*variant) == 10);
  // The count continues from a checkpoint.
  const auto resumed = make_variant("rff", {.heads = 1, .dim = 1, .causal = causal}, options);
  resumed->load_state_dict(variant->state_dict());
  CHECK(count(*resumed) == 2 * expected);
  CHECK(count_of_all(*resumed) == 10);
}

TEST_CASE("rff: a guard bounds results in f32") {
  const Shape shape{1, 64, 1, 16};
  const Tensor q = normal(shape, 1, DType::f32, 3), k = normal(shape, 2, DType::f32, 1),
               v = normal(shape, 3, DType::f32, 1);
  const auto largest = [&](const std::string& guard, double eps) {
    Options options = rff(16);
    options.set("guard", guard);
    if (guard != "none") options.set("guard_eps", eps);
    const auto variant = make_variant(
        "rff", {.heads = 1, .dim = 16, .max_length = 64, .dtype = DType::f32}, options);
    double most = 0;
    for (const double x : forward(*variant, q, k, v).to_vector<double>())
      most = std::max(most, std::abs(x));
    return most;
  };
  CHECK(largest("none", 0) > 10);  // far from any average of v
  CHECK(largest("clamp", 1) <= 10);
}

TEST_CASE("rff: the count does not depend on the number of threads") {
  const auto counted = [](int workers) {
    const int before = threads();
    set_threads(workers);
    const auto variant = make_variant("rff", {.max_length = 64}, rff(2));
    const Tensor x = normal({3, 64, 2, 4}, 1, DType::f64, 3);
    const Variable q(x, true);
    variant->forward(q, q, q, lengths({64, 30, 0}), {.training = true});
    set_threads(before);
    return count(*variant);
  };
  CHECK(counted(1) > 0);
  CHECK(counted(1) == counted(3));
}

namespace {

std::unique_ptr<attention::Variant> gated(const Made& made, double bias) {
  Options options = rff(16, "rfa");
  options.set("gate", true);
  auto variant = make_variant("rff", made, options);
  variant->state_dict().at("gate.bias").fill(bias);
  return variant;
}

}  // namespace

TEST_CASE("rff: the gate of rfa equals its recurrence") {
  const int64_t N = GENERATE(1, 7, 65, 140);
  const ScanCase c(2, N, 2, 4);
  const auto variant = gated({.max_length = N, .causal = true}, GENERATE(-2.0, 3.0));
  const auto f = dynamic_cast<attention::FeatureAttention&>(*variant).map().features(
      Variable(c.q), Variable(c.k), 0);
  const auto state = variant->state_dict();
  const Variable g = sigmoid(linear(Variable(c.x), Variable(state.at("gate.weight")),
                                    Variable(state.at("gate.bias"))));  // (B, N, H)
  const Tensor sums = recurrent(f.query.value(), (f.key * unsqueeze(1 - g, 3)).value(), c.v,
                                log(g).value(), nullptr, true)
                          .out;
  const Tensor expected = (Variable(sums.slice(3, 0, 4)) / Variable(sums.slice(3, 4, 5))).value();
  CHECK(near(variant->forward(c.inputs(), {}, {}).value(), expected, 1e-9));
}

TEST_CASE("rff: gates near 0 and near 1 in f32 over 65,536 tokens") {
  const double bias = GENERATE(-20.0, 12.0);
  const auto of = [&](DType dtype) {
    return gated({.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype}, bias);
  };
  const LongErrors e = long_errors(*of(DType::f32), *of(DType::f64), 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-4);
  // Of a gate near 0, the gradient is what rounding leaves of differences, here for 65,536 tokens.
  CHECK(e.gradients < 5e-3);
}

TEST_CASE("rff: a gate is for rfa, and causal") {
  Options options = rff(16, "rfa");
  options.set("gate", true);
  CHECK_THROWS_WITH(make_variant("rff", {}, options), Catch::Contains("causal only"));
  options = rff(16);
  options.set("gate", true);
  CHECK_THROWS_WITH(make_variant("rff", {.causal = true}, options),
                    Catch::Contains("gate") && Catch::Contains("rfa"));
}

#include <algorithm>
#include <limits>

#include "longhand/attention/features/random_features.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options performer(const std::string& kernel, int64_t m = 20) {
  Options options("attention");
  options.set("features", m);
  options.set("kernel", kernel);
  return options;
}

const std::vector<std::string> all_kernels{
    "positive", "hyperbolic", "trigonometric", "trigonometric_bias",
    "relu",     "exp",        "gelu",          "square"};

// The formulas of the paper, without any stabilisation.
Features features_of(const std::string& kernel, const nn::StateDict& state, double eps) {
  const Tensor W = state.at("features");
  const Row b = kernel == "trigonometric_bias" ? state.at("phases").to_vector<double>() : Row();
  return [=](const Row& x) {
    const double h = half_square(x);
    Row features;
    const auto add = [&](double value) { features.push_back(value); };
    for (const double u : project(W, x)) {
      if (kernel == "positive" || kernel == "hyperbolic") add(std::exp(u - h));
      if (kernel == "hyperbolic") add(std::exp(-u - h));
      if (kernel == "trigonometric") add(std::exp(h) * std::sin(u));
      if (kernel == "trigonometric") add(std::exp(h) * std::cos(u));
      if (kernel == "trigonometric_bias") add(std::exp(h) * std::cos(u + b[features.size()]));
      if (kernel == "relu") add(std::max(u, 0.0) + eps);
      if (kernel == "exp") add(std::exp(u) + eps);
      if (kernel == "gelu") add(u * std::erfc(-u / std::sqrt(2)) / 2 + eps);
      if (kernel == "square") add(u * u + eps);
    }
    return features;
  };
}

double default_eps(const std::string& kernel) {
  return kernel == "relu" || kernel == "gelu" || kernel == "square" ? 1e-3 : 0;
}

Tensor projection_of(const attention::Variant& variant) {
  return variant.state_dict().at("features");
}

}  // namespace

TEST_CASE("performer equals its N x N form") {
  const std::string kernel = GENERATE(from_range(all_kernels));
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO(kernel << " causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  // Normalisers of signed features stay away from 0 for small inputs only.
  const double std = kernel.substr(0, 4) == "trig" ? 0.3 : 1.5;
  const Tensor q = normal({2, N, 2, 4}, 1, DType::f64, std),
               k = normal({2, N, 2, 4}, 2, DType::f64, std), v = normal({2, N, 2, 4}, 3);
  const auto variant =
      make_variant("performer", {.max_length = N, .causal = causal}, performer(kernel, 40));
  const Features features = features_of(kernel, variant->state_dict(), default_eps(kernel));
  CHECK(near(forward(*variant, q, k, v, mask),
             naive_kernel_attention(q, k, v, dot, causal, mask, features), 1e-10));
}

TEST_CASE("performer: gradients of every kernel") {
  const std::string kernel = GENERATE(from_range(all_kernels));
  const bool causal = GENERATE(false, true);
  INFO(kernel << " causal " << causal);
  const int64_t N = causal ? 67 : 9;  // more than one block
  Options options = performer(kernel, 5);
  if (kernel == "gelu") options.set("eps", 0.5);  // away from normalisers near 0
  const auto variant =
      make_variant("performer", {.heads = 1, .dim = 3, .max_length = N, .causal = causal}, options);
  const Mask mask = lengths({static_cast<int32_t>(N), static_cast<int32_t>(N - 3)});
  const double std = kernel.substr(0, 4) == "trig" ? 0.2 : 0.7;
  GradcheckOptions checks;
  checks.max_elements = 60;
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {normal({2, N, 1, 3}, 1, DType::f64, std), normal({2, N, 1, 3}, 2, DType::f64, std),
       normal({2, N, 1, 3}, 3)},
      checks);
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("performer: every kind of draw, and separate draws for each head") {
  const std::string draw = GENERATE(as<std::string>(), "orthogonal", "iid", "givens");
  const std::string norm = GENERATE(as<std::string>(), "chi", "sqrt_d");
  Options options = performer("positive", 6);
  options.set("draw", draw);
  options.set("norm", norm);
  const Tensor q = normal({2, 9, 2, 4}, 1), k = normal({2, 9, 2, 4}, 2),
               v = normal({2, 9, 2, 4}, 3);
  const auto shared = make_variant("performer", {}, options);
  const Tensor W = projection_of(*shared);
  REQUIRE(W.shape() == Shape{6, 4});
  double square = 0;
  for (int64_t d = 0; d < 4; ++d) square += W.at({5, d}) * W.at({5, d});
  CHECK((std::abs(square - 4) <= 1e-12) == (norm == "sqrt_d"));

  options.set("heads", std::string("per_head"));
  const auto own = make_variant("performer", {}, options);
  REQUIRE(projection_of(*own).shape() == Shape{2, 6, 4});
  const Tensor out = forward(*own, q, k, v);
  for (int64_t h = 0; h < 2; ++h) {
    copy_into(projection_of(*shared), projection_of(*own).select(0, h));
    CHECK(near(out.select(2, h).clone(), forward(*shared, q, k, v).select(2, h).clone(), 1e-12));
  }
}

TEST_CASE("performer approaches softmax as features grow") {
  const Tensor q = normal({1, 24, 2, 4}, 1), k = normal({1, 24, 2, 4}, 2),
               v = normal({1, 24, 2, 4}, 3);
  const Tensor exact = make_variant("softmax", {.max_length = 24})
                           ->forward(Variable(q), Variable(k), Variable(v), {}, {})
                           .value();
  const auto error = [&](int64_t m) {
    const auto variant = make_variant("performer", {.max_length = 24}, performer("positive", m));
    const Tensor out = variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value();
    double sum = 0;
    for (int64_t i = 0; i < out.numel(); ++i)
      sum += std::pow(out.data<double>()[i] - exact.data<double>()[i], 2);
    return std::sqrt(sum / static_cast<double>(out.numel()));
  };
  const double few = error(32), many = error(8192);
  INFO("32 features: " << few << ", 8192: " << many);
  CHECK(many <= 0.01);
  CHECK(many <= few / 5);
}

// Reference implementations subtract max(w·x) but ignore |x|²/2: from 2 N(0, 1) on, only their eps
// remains, and attention is uniform.
TEST_CASE("performer stays finite and not uniform for large norms in f32") {
  const std::string kernel = GENERATE(as<std::string>(), "positive", "hyperbolic");
  const double scale = GENERATE(1.0, 4.0, 30.0);
  const bool causal = GENERATE(false, true);
  if (causal && scale > 4) return;  // causal attention has one scale for all features of a row
  INFO(kernel << " scale " << scale << " causal " << causal);
  const Shape shape{1, 100, 1, 64};
  const Made made{.heads = 1, .dim = 64, .max_length = 100, .causal = causal, .dtype = DType::f32};
  const auto variant = make_variant("performer", made, performer(kernel, 128));
  const Tensor q = normal(shape, 1, DType::f32, scale), k = normal(shape, 2, DType::f32, scale),
               v = normal(shape, 3, DType::f32, 1);
  const Outcome o = run_variant(*variant, q, k, v, {}, normal(shape, 4, DType::f32, 1));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dq));
  CHECK(all_finite(o.dk));
  // Compared with the same inputs in f64, where nothing underflows.
  Made wide = made;
  wide.dtype = DType::f64;
  const auto reference = make_variant("performer", wide, performer(kernel, 128));
  reference->load_state_dict(variant->state_dict());
  const auto in64 = [](const Tensor& t) { return Variable(t.to(DType::f64)); };
  const Tensor expected = reference->forward(in64(q), in64(k), in64(v), {}, {}).value();
  CHECK(near(o.out, expected, scale > 4 ? 2e-2 : 1e-3));
  const Tensor uniform = mean(Variable(v), {1}, true).value();
  CHECK_FALSE(near(o.out.slice(1, 99, 100), uniform, 0.1));
}

TEST_CASE("performer: a huge later key does not change earlier results") {
  const auto variant =
      make_variant("performer", {.max_length = 130, .causal = true, .dtype = DType::f32});
  const Shape shape{1, 130, 2, 4};
  const Tensor q = normal(shape, 1, DType::f32), v = normal(shape, 3, DType::f32);
  Tensor k = normal(shape, 2, DType::f32);
  const Tensor before = variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value();
  k.slice(1, 40, 41).fill(60);
  k.slice(1, 129, 130).fill(-90);
  const Outcome o = run_variant(*variant, q, k, v, {}, normal(shape, 4, DType::f32));
  CHECK(identical(o.out.slice(1, 0, 40).contiguous(), before.slice(1, 0, 40).contiguous()));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dk));
}

TEST_CASE("performer: features are not parameters") {
  const auto variant = make_variant("performer");
  CHECK(variant->named_parameters().empty());
  CHECK(projection_of(*variant).shape() == Shape{20, 4});
}

TEST_CASE("performer: eps is part of the features of other kernels") {
  const std::string kernel = GENERATE(as<std::string>(), "relu", "exp", "gelu", "square");
  const double eps = GENERATE(0.5, 1e-4, 0.0);
  const bool causal = GENERATE(false, true);
  INFO(kernel << " eps " << eps << " causal " << causal);
  Options options = performer(kernel);
  options.set("eps", eps);
  const auto variant = make_variant("performer", {.causal = causal}, options);
  const Tensor q = normal({1, 13, 2, 4}, 1), k = normal({1, 13, 2, 4}, 2),
               v = normal({1, 13, 2, 4}, 3);
  const Features features = features_of(kernel, variant->state_dict(), eps);
  CHECK(near(forward(*variant, q, k, v), naive_kernel_attention(q, k, v, dot, causal, {}, features),
             1e-9));
  CHECK(variant->capabilities().averages == (eps > 0 || kernel == "exp"));
}

TEST_CASE("performer: exponentials with eps > 0 do not overflow in f32") {
  Options options = performer("exp");
  options.set("eps", 1e-3);
  const auto variant = make_variant("performer", {.dtype = DType::f32}, options);
  const Tensor q = normal({1, 9, 2, 4}, 1, DType::f32, 200),
               k = normal({1, 9, 2, 4}, 2, DType::f32, 200),
               v = normal({1, 9, 2, 4}, 3, DType::f32);
  CHECK(all_finite(forward(*variant, q, k, v)));
}

TEST_CASE("performer: a query without a feature gives 0 and gets no gradient") {
  Options options = performer("relu", 3);
  options.set("eps", 0.0);
  const bool causal = GENERATE(false, true);
  const auto variant = make_variant("performer", {.causal = causal}, options);
  const Tensor W = projection_of(*variant);
  Tensor q = normal({1, 5, 2, 4}, 1);
  const Tensor k = normal({1, 5, 2, 4}, 2), v = normal({1, 5, 2, 4}, 3);
  // Negative along all three rows, which are orthogonal.
  for (int64_t d = 0; d < 4; ++d)
    q.slice(1, 2, 3).slice(3, d, d + 1).fill(-W.at({0, d}) - W.at({1, d}) - W.at({2, d}));
  const Outcome o = run_variant(*variant, q, k, v, {}, normal({1, 5, 2, 4}, 4), {.training = true});
  CHECK(all_zero(o.out.slice(1, 2, 3)));
  for (const Tensor* t : {&o.out, &o.dq, &o.dk, &o.dv}) CHECK(all_finite(*t));
  CHECK(all_zero(o.dq.slice(1, 2, 3)));
  CHECK(variant->metrics().at("nonpositive_normalizers") >= 0.2);
}

TEST_CASE("performer: exponentials with eps > 0 agree with reference implementations") {
  const std::string kernel = GENERATE(as<std::string>(), "positive", "hyperbolic");
  const double eps = 1e-2;
  Options options = performer(kernel, 7);
  options.set("eps", eps);
  const auto variant = make_variant("performer", {.heads = 1}, options);
  const Tensor W = projection_of(*variant);
  const int64_t N = 9, n = 6;
  const Tensor q = normal({1, N, 1, 4}, 1), k = normal({1, N, 1, 4}, 2),
               v = normal({1, N, 1, 4}, 3);
  const auto exponents = [&](const Row& x) {
    Row u = project(W, x);
    if (kernel == "hyperbolic")
      for (int64_t l = 0; l < 7; ++l) u.push_back(-u[l]);
    return u;
  };
  const auto most = [](const Row& u) { return *std::max_element(u.begin(), u.end()); };
  double key_most = -1e300;
  for (int64_t j = 0; j < n; ++j) key_most = std::max(key_most, most(exponents(rows_of(k)[j])));
  const auto features = [&](const Row& x, double c) {
    Row out = exponents(x);
    for (double& u : out) u = std::exp(u - half_square(x) - c) + eps;
    return out;
  };
  const Tensor expected = naive_kernel_attention(
      q, k, v,
      [&](const Row& a, const Row& b) {
        return dot(features(a, most(exponents(a))), features(b, key_most));
      },
      false, lengths({static_cast<int32_t>(n)}));
  CHECK(near(forward(*variant, q, k, v, lengths({static_cast<int32_t>(n)})), expected, 1e-12));

  // Causal: each row is the last row of its prefix.
  const auto causal = make_variant("performer", {.heads = 1, .causal = true}, options);
  const Tensor rows = forward(*causal, q, k, v);
  for (const int64_t i : {1, 4, 8}) {
    const auto prefix = [&](const Tensor& x) { return x.slice(1, 0, i + 1); };
    const Tensor last = forward(*variant, prefix(q), prefix(k), prefix(v)).slice(1, i, i + 1);
    CHECK(near(rows.slice(1, i, i + 1), last, 1e-12));
  }
  CHECK_FALSE(causal->capabilities().decodes);
  CHECK_THROWS_AS(causal->decoder(1), ConfigError);
}

// The defect that eps = 0 avoids: D = 64, m = 256, as in reference implementations.
TEST_CASE("performer: for large norms, attention is uniform with eps > 0 and not without") {
  const double eps = GENERATE(0.0, 1e-4);
  Options options = performer("positive", 256);
  options.set("eps", eps);
  const auto variant = make_variant(
      "performer", {.heads = 1, .dim = 64, .max_length = 50, .dtype = DType::f32}, options);
  const Shape shape{1, 50, 1, 64};
  const Tensor q = normal(shape, 1, DType::f32, 2.5), k = normal(shape, 2, DType::f32, 2.5),
               v = normal(shape, 3, DType::f32, 1);
  const Tensor out = forward(*variant, q, k, v);
  const Tensor average = broadcast_to(mean(Variable(v), {1}, true), shape).value();
  CHECK(near(out, average, 1e-3) == (eps > 0));
}

TEST_CASE("performer: optimal features for entries of 0 are positive ones") {
  const auto positive = make_variant("performer", {}, performer("positive"));
  const auto optimal =
      make_variant("performer", {},
                   options_of({{"features", int64_t{20}}, {"kernel", "optimal"}, {"spread", 0.0}}));
  const Operands x({2, 9, 2, 4});
  check_near(run_variant(*optimal, x), run_variant(*positive, x), 1e-13);
  CHECK(attention::optimal_coefficient(8, 0) == 0);
  CHECK(attention::optimal_coefficient(8, 2) < attention::optimal_coefficient(8, 1));
}

TEST_CASE("performer: a learned projection is a parameter and is never redrawn") {
  const std::string kernel = GENERATE(as<std::string>(), "positive", "trigonometric_bias");
  Options options = performer(kernel);
  options.set("draw", std::string("learned"));
  const auto variant = make_variant("performer", {}, options);
  const nn::StateDict state = variant->state_dict();
  const Tensor W = state.at("features").clone();
  // It begins with the draw of an untrained one.
  CHECK(identical(W, projection_of(*make_variant("performer", {}, performer(kernel)))));
  for (const char* name : {"random_state", "redraws", "steps"}) CHECK(state.count(name) == 0);
  for (int i = 0; i < 1001; ++i) variant->after_step();
  CHECK(identical(projection_of(*variant), W));
  const Operands x({2, 9, 2, 4}, 0.3);
  CHECK_FALSE(all_zero(run_variant(*variant, x).parameters.at("features")));
  options.set("redraw_interval", int64_t{10});
  CHECK_THROWS_WITH(make_variant("performer", {}, options), Catch::Contains("redraw_interval"));
}

TEST_CASE("performer: options that do not apply to a kernel are refused") {
  for (const char* key : {"guard", "eps"}) {
    const bool guard = key == std::string("guard");
    Options options = performer(guard ? "positive" : "trigonometric");
    if (guard)
      options.set("guard", std::string("add"));
    else
      options.set("eps", 0.1);
    CHECK_THROWS_WITH(make_variant("performer", {}, options),
                      Catch::Contains(key) && Catch::Contains("applies only with"));
  }
}

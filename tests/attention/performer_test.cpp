#include <limits>

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

// As the paper writes them, without any stabilisation.
Features features_of(const std::string& kernel, const Tensor& W) {
  return [kernel, W](const Row& x) {
    const Row u = project(W, x);
    Row features;
    for (const double value : u)
      features.push_back(kernel == "relu" ? std::max(value, 0.0) + 1e-3
                                          : std::exp(value - half_square(x)));
    if (kernel == "hyperbolic")
      for (const double value : u) features.push_back(std::exp(-value - half_square(x)));
    return features;
  };
}

Tensor projection_of(const attention::Variant& variant) {
  return variant.state_dict().at("features");
}

}  // namespace

TEST_CASE("performer equals its N x N form") {
  const std::string kernel = GENERATE(as<std::string>(), "softmax", "hyperbolic", "relu");
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 64, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO(kernel << " causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  const Tensor q = normal({2, N, 2, 4}, 1, DType::f64, 1.5),
               k = normal({2, N, 2, 4}, 2, DType::f64, 1.5), v = normal({2, N, 2, 4}, 3);
  const auto variant =
      make_variant("performer", {.max_length = N, .causal = causal}, performer(kernel));
  CHECK(near(variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value(),
             naive_kernel_attention(q, k, v, dot, causal, mask,
                                    features_of(kernel, projection_of(*variant))),
             1e-10));
}

TEST_CASE("performer: gradients of every kernel") {
  const std::string kernel = GENERATE(as<std::string>(), "softmax", "hyperbolic", "relu");
  const bool causal = GENERATE(false, true);
  INFO(kernel << " causal " << causal);
  const int64_t N = causal ? 67 : 9;  // past the first chunk
  const auto variant = make_variant(
      "performer", {.heads = 1, .dim = 3, .max_length = N, .causal = causal}, performer(kernel, 5));
  const Mask mask = lengths({static_cast<int32_t>(N), static_cast<int32_t>(N - 3)});
  GradcheckOptions options;
  options.max_elements = 60;
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {normal({2, N, 1, 3}, 1), normal({2, N, 1, 3}, 2), normal({2, N, 1, 3}, 3)}, options);
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("performer approaches softmax as features grow") {
  const Tensor q = normal({1, 24, 2, 4}, 1), k = normal({1, 24, 2, 4}, 2),
               v = normal({1, 24, 2, 4}, 3);
  const Tensor exact = make_variant("softmax", {.max_length = 24})
                           ->forward(Variable(q), Variable(k), Variable(v), {}, {})
                           .value();
  const auto error = [&](int64_t m) {
    const auto variant = make_variant("performer", {.max_length = 24}, performer("softmax", m));
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

// Reference implementations subtract max(w·x) but not what |x|²/2 leaves behind: from 2·N(0, 1) on,
// their eps is all that remains, and attention is uniform.
TEST_CASE("performer stays finite and not uniform for large norms in f32") {
  const std::string kernel = GENERATE(as<std::string>(), "softmax", "hyperbolic");
  const double scale = GENERATE(1.0, 4.0, 30.0);
  const bool causal = GENERATE(false, true);
  if (causal && scale > 4) return;  // one scale for all features of a row there
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
  // Against the same numbers in f64, where nothing underflows.
  Made wide = made;
  wide.dtype = DType::f64;
  const auto reference = make_variant("performer", wide, performer(kernel, 128));
  reference->load_state_dict(variant->state_dict());
  const auto in64 = [](const Tensor& t) { return Variable(t.to(DType::f64)); };
  const Tensor wanted = reference->forward(in64(q), in64(k), in64(v), {}, {}).value();
  CHECK(near(o.out, wanted, scale > 4 ? 2e-2 : 1e-3));
  const Tensor uniform = mean(Variable(v), {1}, true).value();
  CHECK_FALSE(near(o.out.slice(1, 99, 100), uniform, 0.1));
}

TEST_CASE("performer: a huge key in the future does not silence the past") {
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

TEST_CASE("performer: features are no parameters") {
  const auto variant = make_variant("performer");
  CHECK(variant->named_parameters().empty());
  CHECK(projection_of(*variant).shape() == Shape{20, 4});
}

TEST_CASE("performer: eps belongs to the relu kernel") {
  Options options = performer("relu");
  options.set("eps", 0.0);
  CHECK_THROWS_AS(make_variant("performer", {}, options), ConfigError);
  options.set("eps", 0.5);
  const auto variant = make_variant("performer", {}, options);
  // A large eps makes attention uniform.
  options.set("eps", 1e9);
  const auto uniform = make_variant("performer", {}, options);
  const Variable q(normal({1, 6, 2, 4}, 1)), k(normal({1, 6, 2, 4}, 2)), v(normal({1, 6, 2, 4}, 3));
  const Tensor average = broadcast_to(mean(v, {1}, true), {1, 6, 2, 4}).value();
  CHECK(near(uniform->forward(q, k, v, {}, {}).value(), average, 1e-6));
  CHECK_FALSE(near(variant->forward(q, k, v, {}, {}).value(), average, 1e-3));
}

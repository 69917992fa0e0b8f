#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// Returns exp(-|x - y|² / (2 sigma² sqrt(D))).
double kernel(const Row& x, const Row& y, double sigma = 1) {
  double square = 0;
  for (size_t d = 0; d < x.size(); ++d) square += (x[d] - y[d]) * (x[d] - y[d]);
  return std::exp(-square / (2 * sigma * sigma * std::sqrt(static_cast<double>(x.size()))));
}

// Returns sum_j kernel(q_i, k_j) v_j.
Tensor naive_sums(const Tensor& q, const Tensor& k, const Tensor& v, const PairKernel& kernel_of,
                  bool causal, const Mask& mask) {
  const auto attend = [&](const Row& query, const std::vector<Row>& keys,
                          const std::vector<Row>& values,
                          double* out) { add_weighted(kernel_of, query, keys, values, out); };
  return naive_attention(q, k, v, attend, causal, mask);
}

}  // namespace

TEST_CASE("gaussian equals its N x N form") {
  const bool normalized = GENERATE(true, false);
  const bool causal = GENERATE(false, true);
  const double sigma = GENERATE(1.0, 0.6);
  const int64_t N = GENERATE(1, 7, 70);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const auto variant = make_variant("gaussian", {.max_length = N, .causal = causal},
                                    options_of({{"normalized", normalized}, {"sigma", sigma}}));
  const auto kernel_of = [&](const Row& x, const Row& y) { return kernel(x, y, sigma); };
  const Tensor expected = normalized ? naive_kernel_attention(q, k, v, kernel_of, causal, mask)
                                     : naive_sums(q, k, v, kernel_of, causal, mask);
  CHECK(near(forward(*variant, q, k, v, mask), expected, 1e-12));
  CHECK(variant->capabilities().averages == normalized);
}

TEST_CASE("gaussian: unnormalised weights of large rows are finite and at most 1") {
  for (const double std : {1.0, 1e3, 1e4}) {
    const Tensor q = normal({1, 5, 1, 64}, 1, DType::f32, std),
                 ones = Tensor::full(q.shape(), 1, DType::f32);
    const auto variant = make_variant("gaussian", {.heads = 1, .dim = 64, .dtype = DType::f32},
                                      options_of({{"normalized", false}}));
    const Outcome found = run_variant(*variant, q, q, ones, {}, ones);
    for (const double y : found.out.to_vector<double>()) CHECK((0 <= y && y <= 5.0001));
    CHECK(all_finite(found.dq));
  }
}

TEST_CASE("gaussian: the tiles equal the stored weights, with gradients and dropout") {
  const bool normalized = GENERATE(true, false);
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 70);
  const auto n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  Mask with_bias = mask;
  with_bias.bias = Variable(Tensor::zeros({N, N}, DType::f64));
  const auto variant =
      make_variant("gaussian", {.heads = 4, .kv_heads = 2, .causal = causal},
                   options_of({{"normalized", normalized}, {"sigma", 0.8}, {"dropout", 0.3}}));
  const Tensor q = normal({2, N, 4, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3), cotangent = normal({2, N, 4, 4}, 4);
  const nn::Pass pass = nn::Pass::train(Generator(5));
  check_near(run_variant(*variant, q, k, v, mask, cotangent, pass),
             run_variant(*variant, q, k, v, with_bias, cotangent, pass), 1e-12);
}

TEST_CASE("gaussian: keys of equal norms make it softmax attention") {
  const bool causal = GENERATE(false, true);
  const Tensor q = normal({2, 13, 2, 4}, 1), v = normal({2, 13, 2, 4}, 3);
  const Tensor k = affine(rms_norm(Variable(normal({2, 13, 2, 4}, 2)), {}, 0), 1.7).value();
  const Tensor softmax = forward(*make_variant("softmax", {.causal = causal}), q, k, v);
  CHECK(near(forward(*make_variant("gaussian", {.causal = causal}), q, k, v), softmax, 1e-12));
  CHECK_FALSE(near(
      forward(*make_variant("gaussian", {.causal = causal}), q, normal({2, 13, 2, 4}, 2), v),
      forward(*make_variant("softmax", {.causal = causal}), q, normal({2, 13, 2, 4}, 2), v), 1e-3));
}

TEST_CASE("gaussian: random Fourier features of unit vectors approach it, and so does RFA") {
  const auto unit = [](uint64_t seed) {
    return affine(rms_norm(Variable(normal({1, 24, 1, 4}, seed)), {}, 0), 0.5).value();
  };
  const Tensor q = unit(1), k = unit(2), v = normal({1, 24, 1, 4}, 3);
  const Made made{.heads = 1, .max_length = 24};
  // exp(-|q - k|² / 2): sigma² sqrt(D) = 1
  const Tensor exact = forward(
      *make_variant("gaussian", made, options_of({{"sigma", std::pow(4, -0.25)}})), q, k, v);
  for (const std::string kind : {"rfa", "gaussian"}) {
    Options options = options_of({{"features", 16384}, {"kernel", kind}});
    if (kind == "gaussian") options.set("sigma", std::pow(4, -0.25));
    CHECK(near(forward(*make_variant("rff", made, options), q, k, v), exact, 0.01));
  }
}

TEST_CASE("gaussian: far apart and large, in f32") {
  const bool normalized = GENERATE(true, false);
  const auto variant =
      make_variant("gaussian", {.dtype = DType::f32}, options_of({{"normalized", normalized}}));
  const Shape shape{1, 12, 2, 4};
  const Outcome o =
      run_variant(*variant, normal(shape, 1, DType::f32, 300), normal(shape, 2, DType::f32, 300),
                  normal(shape, 3, DType::f32), {}, normal(shape, 4, DType::f32));
  for (const Tensor* t : {&o.out, &o.dq, &o.dk, &o.dv}) CHECK(all_finite(*t));
}

TEST_CASE("gaussian: options that do not apply are refused, with the reason") {
  const auto with = [](const Settings& settings) {
    const Options options = options_of(settings);
    make_variant("gaussian", {.causal = true}, options);
  };
  CHECK_NOTHROW(with({{"dropout", 0.1}}));
  CHECK_THROWS_AS(with({{"sigma", 0.0}}), ConfigError);
  for (const char* option :
       {"landmarks", "gamma", "inverse", "inverse_iterations", "redraw_interval"})
    CHECK_THROWS_WITH(with({{option, 4}}), Catch::Contains("skyformer"));
}

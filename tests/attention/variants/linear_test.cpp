#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

const std::vector<std::string> maps{"elu1",    "relu",      "squared_relu", "exp",
                                    "taylor2", "cosformer", "hedgehog"};

Options linear_with(const std::string& map) {
  Options options("attention");
  options.set("feature_map", map);
  return options;
}

bool rectified(const std::string& map) {
  return map == "relu" || map == "squared_relu" || map == "cosformer";
}

// Inputs of both signs if no feature can be 0; otherwise mostly positive ones, so that every query
// has a nonzero weight for some key.
Tensor input(const std::string& map, const Shape& shape, uint64_t seed, double std) {
  const Tensor x = normal(shape, seed, DType::f64, std);
  return rectified(map) ? affine(Variable(x), 1, 2 * std).value() : x;
}

Row softmax_of(Row x) {
  double sum = 0;
  for (double& value : x) sum += value = std::exp(value);
  for (double& value : x) value /= sum;
  return x;
}

}  // namespace

TEST_CASE("linear equals its N x N form") {
  const std::string map = GENERATE(from_range(maps));
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO(map << " causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  const Tensor q = input(map, {2, N, 2, 4}, 1, 1.5), k = input(map, {2, N, 2, 4}, 2, 1.5),
               v = normal({2, N, 2, 4}, 3);
  const auto variant =
      make_variant("linear", {.max_length = N + 3, .causal = causal}, linear_with(map));
  nn::StateDict state = variant->state_dict();
  Tensor Aq, Ak;
  if (map == "hedgehog") {
    Aq = normal({2, 4, 4}, 5);
    Ak = normal({2, 4, 4}, 6);
    copy_into(state.at("query_map"), Aq);
    copy_into(state.at("key_map"), Ak);
  }
  const auto features = [&](const Tensor& x, const Tensor& A) {
    return definitions::linear_features(map, Variable(x), N + 3, A ? Variable(A) : Variable());
  };
  const Variable weights = definitions::of_features(
      features(q, Aq), features(k, Ak),
      definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths}));
  CHECK(near(forward(*variant, q, k, v, mask), definitions::apply(weights, Variable(v)).value(),
             1e-10));
}

TEST_CASE("linear: gradients of every feature map") {
  const std::string map = GENERATE(from_range(maps));
  const bool causal = GENERATE(false, true);
  const bool padded = GENERATE(false, true);
  INFO(map << " causal " << causal << " padded " << padded);
  const auto variant = make_variant("linear", {.dim = 3, .causal = causal}, linear_with(map));
  const Mask mask = padded ? lengths({9, 5}) : Mask{};
  const Tensor q = input(map, {2, 9, 2, 3}, 1, 0.7), k = input(map, {2, 9, 2, 3}, 2, 0.7),
               v = normal({2, 9, 2, 3}, 3);
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) { return variant->forward(in[0], in[1], in[2], mask, {}); },
      {q, k, v});
  INFO(report);
  CHECK(report.ok);
  check_parameters(
      *variant, [&] { return variant->forward(Variable(q), Variable(k), Variable(v), mask, {}); });
}

TEST_CASE("linear: taylor2 is the kernel 1 + s + s²/2") {
  const bool causal = GENERATE(false, true);
  const int64_t D = GENERATE(1, 2, 5);
  const Tensor q = normal({2, 70, 2, D}, 1, DType::f64, 2),
               k = normal({2, 70, 2, D}, 2, DType::f64, 2), v = normal({2, 70, 2, D}, 3);
  const auto variant = make_variant("linear", {.dim = D, .max_length = 70, .causal = causal},
                                    linear_with("taylor2"));
  const auto kernel = [](const Row& a, const Row& b) {
    const double s = dot(a, b) / std::sqrt(static_cast<double>(a.size()));
    return 1 + s + s * s / 2;
  };
  CHECK(near(forward(*variant, q, k, v), naive_kernel_attention(q, k, v, kernel, causal), 1e-11));
}

TEST_CASE("linear: cosformer weights are cosines of the distance") {
  const bool causal = GENERATE(false, true);
  const int64_t N = 70, M = 75;
  const Tensor q = input("relu", {1, N, 2, 4}, 1, 1), k = input("relu", {1, N, 2, 4}, 2, 1),
               v = normal({1, N, 2, 4}, 3);
  const auto variant =
      make_variant("linear", {.max_length = M, .causal = causal}, linear_with("cosformer"));
  // The last entry of each row is its position, for the kernel.
  const auto numbered = [&](const Tensor& x) {
    Tensor out = Tensor::empty({1, N, 2, 5}, DType::f64);
    copy_into(out.slice(3, 0, 4), x);
    for (int64_t i = 0; i < N; ++i)
      out.slice(1, i, i + 1).slice(3, 4, 5).fill(static_cast<double>(i));
    return out;
  };
  const auto kernel = [&](const Row& a, const Row& b) {
    double sum = 0;
    for (size_t d = 0; d < 4; ++d) sum += std::max(a[d], 0.0) * std::max(b[d], 0.0);
    return sum * std::cos(std::acos(-1.0) * (a[4] - b[4]) / (2 * static_cast<double>(M)));
  };
  CHECK(near(forward(*variant, q, k, v),
             naive_kernel_attention(numbered(q), numbered(k), v, kernel, causal), 1e-11));
  CHECK(variant->capabilities().positional);
  CHECK_THROWS_AS(forward(*variant, normal({1, 76, 2, 4}, 1), normal({1, 76, 2, 4}, 2),
                          normal({1, 76, 2, 4}, 3)),
                  ShapeError);
}

TEST_CASE("linear: hedgehog starts as softmax([x, -x])") {
  const auto variant = make_variant("linear", {}, linear_with("hedgehog"));
  const Tensor q = normal({1, 9, 2, 4}, 1), k = normal({1, 9, 2, 4}, 2),
               v = normal({1, 9, 2, 4}, 3);
  const auto features = [](const Row& x) {
    Row both = x;
    for (const double a : x) both.push_back(-a);
    return softmax_of(both);
  };
  CHECK(near(forward(*variant, q, k, v), naive_kernel_attention(q, k, v, dot, false, {}, features),
             1e-12));
}

TEST_CASE("linear: exponentials of any size are finite in f32") {
  const std::string map = GENERATE(as<std::string>(), "exp", "hedgehog");
  const Tensor q = normal({1, 40, 2, 4}, 1, DType::f32, 300),
               k = normal({1, 40, 2, 4}, 2, DType::f32, 300),
               v = normal({1, 40, 2, 4}, 3, DType::f32);
  const auto variant =
      make_variant("linear", {.max_length = 40, .dtype = DType::f32}, linear_with(map));
  const Outcome o = run_variant(*variant, q, k, v, {}, normal({1, 40, 2, 4}, 4, DType::f32));
  CHECK(all_finite(o.out));
  CHECK(all_finite(o.dq));
  CHECK(all_finite(o.dk));
  const Tensor average = broadcast_to(mean(Variable(v), {1}, true), v.shape()).value();
  CHECK_FALSE(near(o.out, average, 0.1));
}

TEST_CASE("linear: a query without a positive entry gives 0 and gets no gradient") {
  const std::string map = GENERATE(as<std::string>(), "relu", "squared_relu", "cosformer");
  const bool causal = GENERATE(false, true);
  INFO(map << " causal " << causal);
  const auto variant = make_variant("linear", {.causal = causal}, linear_with(map));
  Tensor q = input(map, {2, 6, 2, 4}, 1, 1);
  const Tensor k = input(map, {2, 6, 2, 4}, 2, 1), v = normal({2, 6, 2, 4}, 3);
  q.slice(1, 3, 4).fill(-0.5);
  const Outcome o =
      run_variant(*variant, q, k, v, lengths({6, 4}), normal({2, 6, 2, 4}, 4), {.training = true});
  CHECK(all_zero(o.out.slice(1, 3, 4)));
  for (const Tensor* t : {&o.out, &o.dq, &o.dk, &o.dv}) CHECK(all_finite(*t));
  CHECK(all_zero(o.dq.slice(1, 3, 4)));
  CHECK_FALSE(all_zero(o.dq.slice(1, 2, 3)));
  CHECK_FALSE(variant->capabilities().averages);
  CHECK(variant->metrics().at("nonpositive_normalizers") ==
        Approx(4.0 / 20));  // one query in each sample, of 10 in total, in 2 heads
}

TEST_CASE("linear: one token is its own value, very negative ones too") {
  for (const double shift : {0.0, -30.0}) {
    const auto variant = make_variant("linear", {.dtype = DType::f32});
    const Variable x(normal({1, 1, 2, 4}, 1, DType::f32)), v(normal({1, 1, 2, 4}, 2, DType::f32));
    CHECK(near(variant->forward(x + shift, x + shift, v, {}, {}).value(), v.value(), 1e-6));
  }
}

TEST_CASE("linear: options of learned and shifted features apply to these only") {
  const auto make = [](const Settings& settings) {
    return make_variant("linear", {}, options_of(settings));  // heads of width 4
  };
  CHECK(make({{"feature_map", "t2r"}, {"features", int64_t{7}}})->parameter_count() ==
        2 * 7 * (4 + 1));
  CHECK(make({{"feature_map", "rebased"}})->parameter_count() == 4 * 2 * 4);
  CHECK(make({{"feature_map", "dpfp"}})->parameter_count() == 0);
  CHECK(make({{"feature_map", "dpfp"}, {"nu", int64_t{7}}})->rank(1000) == 2 * 4 * 7);
  CHECK_THROWS_WITH(make({{"feature_map", "dpfp"}, {"nu", int64_t{8}}}),
                    Catch::Contains("nu") && Catch::Contains("less than 2 D = 8"));
  CHECK_THROWS_WITH(make({{"nu", int64_t{2}}}), Catch::Contains("dpfp"));
  CHECK_THROWS_WITH(make({{"feature_map", "dpfp"}, {"features", int64_t{2}}}),
                    Catch::Contains("t2r"));
}

// relu(-x) is not -relu(x), as in some code: negative entries would have no features.
TEST_CASE("linear: dpfp has features of negative entries") {
  const auto variant = make_variant("linear", {}, linear_with("dpfp"));
  const Tensor q = affine(Variable(input("relu", {1, 5, 2, 4}, 1, 1)), -1).value(),
               k = affine(Variable(input("relu", {1, 5, 2, 4}, 2, 1)), -1).value(),
               v = normal({1, 5, 2, 4}, 3);
  const Tensor out = forward(*variant, q, k, v);
  CHECK_FALSE(all_zero(out));
  CHECK(near(out,
             forward(*variant, affine(Variable(q), -1).value(), affine(Variable(k), -1).value(), v),
             1e-13));
}

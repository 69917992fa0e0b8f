#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// The sum of cosines.
Tensor naive(const Tensor& v) {
  const int64_t N = v.size(1), C = v.size(2) * v.size(3);
  const auto x = v.to_vector<double>();
  std::vector<double> y(x.size(), 0.0);
  const double turn = 2 * std::acos(-1.0);
  for (int64_t k = 0; k < N; ++k)
    for (int64_t l = 0; l < C; ++l)
      for (int64_t n = 0; n < N; ++n)
        for (int64_t m = 0; m < C; ++m)
          y[k * C + l] +=
              x[n * C + m] *
              std::cos(turn * (static_cast<double>(k * n % N) / static_cast<double>(N) +
                               static_cast<double>(l * m % C) / static_cast<double>(C)));
  return Tensor::from(y, v.shape());
}

}  // namespace

TEST_CASE("fnet is the sum of cosines, for any number of tokens and channels") {
  const int64_t N = GENERATE(1, 2, 3, 4, 7, 17, 32, 45), D = GENERATE(1, 4, 9);
  INFO(N << " tokens, width " << D);
  const auto variant = make_variant("fnet", {.dim = D}, options_of({{"norm", "none"}}));
  const Tensor v = normal({1, N, 2, D}, 1);
  CHECK(near(forward(*variant, v, v, v), naive(v), 1e-12));
  const auto ortho = make_variant("fnet", {.dim = D});
  CHECK(near(forward(*ortho, v, v, v),
             affine(Variable(naive(v)), 1 / std::sqrt(static_cast<double>(N * 2 * D))).value(),
             1e-12));
}

TEST_CASE("fnet is linear, with the transform of the gradient as its gradient") {
  const auto variant = make_variant("fnet");
  const GradcheckReport report = gradcheck(
      [&](const Variables& in) {
        return variant->forward(in[0], in[0], in[0], lengths({7, 4}), {});
      },
      {normal({2, 7, 2, 4}, 1)});
  INFO(report);
  CHECK(report.ok);
  const Tensor a = normal({1, 12, 2, 4}, 1), b = normal({1, 12, 2, 4}, 2);
  const Tensor sum = (Variable(a) + 2 * Variable(b)).value();
  CHECK(near(
      forward(*variant, sum, sum, sum),
      (Variable(forward(*variant, a, a, a)) + 2 * Variable(forward(*variant, b, b, b))).value(),
      1e-13));
}

TEST_CASE("fnet: long transforms are accurate in f32") {
  for (const int64_t N : {8192, 9973}) {  // a power of 2 and a prime
    const auto narrow = make_variant("fnet", {.heads = 1, .dtype = DType::f32}),
               wide = make_variant("fnet", {.heads = 1});
    const Tensor v = normal({1, N, 1, 4}, 1, DType::f32);
    CHECK(near(forward(*narrow, v, v, v),
               forward(*wide, v.to(DType::f64), v.to(DType::f64), v.to(DType::f64)), 3e-6));
  }
}

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double elu1(double x) { return x > 0 ? x + 1 : std::exp(x); }

double kernel(const Row& q, const Row& k) {
  double sum = 0;
  for (size_t d = 0; d < q.size(); ++d) sum += elu1(q[d]) * elu1(k[d]);
  return sum;
}

}  // namespace

TEST_CASE("linear equals its N x N form") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 64, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO("causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  const Tensor q = normal({2, N, 2, 4}, 1, DType::f64, 2),
               k = normal({2, N, 2, 4}, 2, DType::f64, 2), v = normal({2, N, 2, 4}, 3);
  const auto variant = make_variant("linear", {.max_length = N, .causal = causal});
  CHECK(near(variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value(),
             naive_kernel_attention(q, k, v, kernel, causal, mask), 1e-10));
}

TEST_CASE("linear: one token is its own value, very negative ones too") {
  for (const double shift : {0.0, -30.0}) {
    const auto variant = make_variant("linear", {.dtype = DType::f32});
    const Variable x(normal({1, 1, 2, 4}, 1, DType::f32)), v(normal({1, 1, 2, 4}, 2, DType::f32));
    CHECK(near(variant->forward(x + shift, x + shift, v, {}, {}).value(), v.value(), 1e-6));
  }
}

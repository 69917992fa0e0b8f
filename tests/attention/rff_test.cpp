#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

Options rff(int64_t m) {
  Options options("attention");
  options.set("features", m);
  return options;
}

}  // namespace

TEST_CASE("rff equals its N x N form") {
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 64, 65, 140);
  const int32_t n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO("causal " << causal << " N " << N << " lengths " << mask.lengths.defined());
  const Tensor q = normal({2, N, 2, 4}, 1), k = normal({2, N, 2, 4}, 2),
               v = normal({2, N, 2, 4}, 3);
  const auto variant = make_variant("rff", {.max_length = N, .causal = causal}, rff(40));
  const Tensor W = variant->state_dict().at("features");
  const auto features = [&](const Row& x) {
    Row out;
    for (const double u : project(W, x)) {
      out.push_back(std::exp(half_square(x)) * std::cos(u));
      out.push_back(std::exp(half_square(x)) * std::sin(u));
    }
    return out;
  };
  CHECK(near(variant->forward(Variable(q), Variable(k), Variable(v), mask, {}).value(),
             naive_kernel_attention(q, k, v, dot, causal, mask, features), 1e-10));
}

TEST_CASE("rff approaches softmax as features grow") {
  const Tensor q = normal({1, 24, 2, 4}, 1), k = normal({1, 24, 2, 4}, 2),
               v = normal({1, 24, 2, 4}, 3);
  const Tensor exact = make_variant("softmax", {.max_length = 24})
                           ->forward(Variable(q), Variable(k), Variable(v), {}, {})
                           .value();
  const auto variant = make_variant("rff", {.max_length = 24}, rff(8192));
  CHECK(near(variant->forward(Variable(q), Variable(k), Variable(v), {}, {}).value(), exact, 0.03));
}

TEST_CASE("rff: without frequencies attention knows norms alone") {
  const auto variant = make_variant("rff", {}, rff(8));
  variant->state_dict().at("features").fill(0);
  const Variable q(normal({1, 6, 2, 4}, 1)), v(normal({1, 6, 2, 4}, 3));
  const Variable equal(Tensor::full({1, 6, 2, 4}, 0.3, DType::f64));
  const Tensor average = broadcast_to(mean(v, {1}, true), {1, 6, 2, 4}).value();
  CHECK(near(variant->forward(q, equal, v, {}, {}).value(), average, 1e-14));
}

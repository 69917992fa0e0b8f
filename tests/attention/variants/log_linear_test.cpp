// log_linear and the scan of its levels; the suite of conformance/ tests what holds for every variant.
#include "longhand/attention/definitions/definitions.h"
#include "longhand/attention/ops/fenwick_scan.h"
#include "longhand/autograd/gradcheck.h"
#include "longhand/autograd/ops.h"
#include "tests/attention/scan_variant_check.h"

using namespace longhand;
using namespace longhand::test;

namespace def = longhand::attention::definitions;

TEST_CASE(
    "fenwick_scan: results and gradients are those of the weights, for any number of tokens") {
  const int64_t N = GENERATE(1, 2, 3, 13, 32, 41), levels = GENERATE(1, 3, 7);
  const bool decays = GENERATE(true, false);
  INFO("N " << N << ", levels " << levels << ", decays " << decays);
  const auto leaf = [](const Shape& shape, uint64_t seed) {
    return Variable(normal(shape, seed, DType::f64, 1), true);
  };
  // Blocks of 2 tokens: keys have 3 channels.
  const Variable q = leaf({2, N, 2, 3}, 1), k = leaf({2, N, 2, 3}, 2), v = leaf({2, N, 2, 5}, 3),
                 scales = leaf({2, N, 2, levels}, 4);
  const Variable g((-exp(leaf({2, N, 2}, 5))).value());
  const Tensor cotangent = normal({2, N, 2, 5}, 6);
  std::vector<Variable> all{q, k, v, scales};
  const auto gradients = [&](const Variable& out) {
    for (Variable& x : all) x.zero_grad();
    backward(out, cotangent);
    std::vector<Tensor> found{out.value()};
    for (const Variable& x : all) found.push_back(x.grad().clone());
    return found;
  };
  const auto found = gradients(attention::fenwick_scan({q, k, v, decays ? g : Variable()}, scales));
  const auto expected = gradients(def::apply(
      def::log_linear(q, k, decays ? g : Variable(Tensor::zeros({2, N, 2}, DType::f64)), scales),
      v));
  for (size_t i = 0; i < found.size(); ++i) {
    INFO(i);
    CHECK(near(found[i], expected[i], 1e-12));
  }
}

TEST_CASE("fenwick_scan: a decay of 0 resets the state") {
  const auto run = [](double log_decay) {
    Tensor g = Tensor::full({1, 41, 1}, -0.1, DType::f64);
    for (const int64_t i : {5, 20}) g.data<double>()[i] = log_decay;
    const Variable q(normal({1, 41, 1, 4}, 1)), k(normal({1, 41, 1, 4}, 2), true),
        v(normal({1, 41, 1, 4}, 3)), scales(normal({1, 41, 1, 7}, 4));
    const Variable out = attention::fenwick_scan({q, k, v, Variable(g)}, scales);
    backward(out, normal({1, 41, 1, 4}, 5));
    return std::vector<Tensor>{out.value(), k.grad()};
  };
  const auto found = run(-INFINITY), expected = run(-1e4);
  for (size_t i = 0; i < found.size(); ++i) CHECK(identical(found[i], expected[i]));
}

TEST_CASE("fenwick_scan: gradients of decays") {
  const std::vector<Tensor> x{normal({1, 11, 1, 2}, 1), normal({1, 11, 1, 2}, 2),
                              normal({1, 11, 1, 2}, 3), normal({1, 11, 1}, 4),
                              normal({1, 11, 1, 4}, 5)};
  CHECK(gradcheck(
            [](const Variables& in) {
              return attention::fenwick_scan({in[0], in[1], in[2], -square(in[3])}, in[4]);
            },
            x)
            .ok);
}

TEST_CASE("log_linear: f32 over 65,536 tokens is near f64, for decays near 0 and near 1") {
  const double bias = GENERATE(-12.0, 4.0);
  const auto of = [&](DType dtype) {
    return make_variant("log_linear",
                        {.heads = 1, .max_length = 65536, .causal = true, .dtype = dtype},
                        options_of({{"norm", false}, {"gate", false}}));
  };
  const auto narrow = of(DType::f32), wide = of(DType::f64);
  narrow->state_dict().at("step_bias").fill(bias);
  const LongErrors e = long_errors(*narrow, *wide, 1, 4);
  INFO("bias " << bias << ": result " << e.result << ", gradients " << e.gradients);
  CHECK(e.result < 1e-5);
  CHECK(e.gradients < 1e-4);
}

TEST_CASE("log_linear: a decoder keeps a state for each bit of the number of tokens") {
  const auto variant =
      make_variant("log_linear", {.heads = 3, .dim = 8, .max_length = 100, .causal = true});
  const int64_t one = 3 * (8 * 8 + 1) * 8;
  CHECK(variant->state_bytes(1) == one);
  CHECK(variant->state_bytes(4) == 3 * one);
  CHECK(variant->state_bytes(100000) == 17 * one);
}

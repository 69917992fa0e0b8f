#include "longhand/nn/low_rank_linear.h"

#include <cmath>

#include "longhand/core/gemm.h"
#include "longhand/nn/feed_forward.h"
#include "longhand/nn/residual.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::nn;
using namespace longhand::test;

namespace {

Tensor normal(const Shape& shape, uint64_t seed, DType dtype = DType::f64) {
  Tensor t = Tensor::empty(shape, dtype);
  fill_normal(t, Generator(seed));
  return t;
}

/// B A, in f64.
Tensor product(const Tensor& out, const Tensor& in) {
  Tensor to = Tensor::empty({out.size(0), in.size(1)}, DType::f64);
  matmul_into(to, out.to(DType::f64), in.to(DType::f64));
  return to;
}

double sum_of_squares(const Tensor& x) {
  double sum = 0;
  for (const double each : x.to_vector<double>()) sum += each * each;
  return sum;
}

}  // namespace

TEST_CASE("low rank: all singular values reproduce the full layer") {
  for (const auto& [in, out] : {std::pair{7, 12}, {12, 7}, {9, 9}})
    for (const DType dtype : {DType::f64, DType::f32}) {
      CAPTURE(in, out, dtype);
      const int64_t rank = std::min(in, out);
      Linear full(root(dtype, 1), in, out);
      full.bias->mutable_value().fill(0.25);
      LowRankLinear low(root(dtype, 2), in, out, rank);
      const LowRankFactors factors = low_rank_factors(svd(full.weight.value()), rank);
      low.load_state_dict(
          {{"weight_in", factors.in}, {"weight_out", factors.out}, {"bias", full.bias->value()}});
      const Variable x(normal({5, in}, 3, dtype));
      CHECK(close(low.forward(x).value(), full.forward(x).value(),
                  dtype == DType::f64 ? 1e-12 : 1e-6));
    }
}

TEST_CASE("low rank: the error is that of the singular values left out, and factors are balanced") {
  const Tensor weight = normal({10, 6}, 1);
  const Svd d = svd(weight);
  const auto s = d.s.to_vector<double>();
  for (int64_t rank = 1; rank <= 6; ++rank) {
    const LowRankFactors factors = low_rank_factors(d, rank);
    const Tensor near = product(factors.out, factors.in);
    double tail = 0, kept = 0;
    for (int64_t i = 0; i < 6; ++i) (i < rank ? kept : tail) += i < rank ? s[i] : s[i] * s[i];
    CHECK(sum_of_squares((Variable(weight) - Variable(near)).value()) ==
          Approx(tail).margin(1e-24));
    CHECK(sum_of_squares(factors.in) == Approx(kept));
    CHECK(sum_of_squares(factors.out) == Approx(kept));
  }
  CHECK_THROWS_AS(low_rank_factors(d, 0), ShapeError);
  CHECK_THROWS_AS(low_rank_factors(d, 7), ShapeError);
}

TEST_CASE("low rank: gradients of inputs in every layout, and of parameters") {
  LowRankLinear layer(root(DType::f64, 1), 4, 6, 3);
  fill_normal(layer.bias->mutable_value(), Generator(2));
  const Op op = [&](const Variables& in) { return Variable(layer.forward(in[0])); };
  check_op(op, {{{4}}, {{3, 4}}, {{2, 3, 4}}, {{0, 4}}}, {.f32 = false});

  const Variable x(normal({5, 4}, 3));
  const Tensor cotangent = normal({5, 6}, 4);
  const auto value = [&] {
    return sum(layer.forward(x).eval() * Variable(cotangent)).value().item();
  };
  layer.zero_grad();
  backward(layer.forward(x).eval(), cotangent);
  for (auto& [name, parameter] : layer.named_parameters()) {
    const auto gradient = parameter.grad().to_vector<double>();
    double* const p = parameter.mutable_value().data<double>();
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double before = p[i], step = 1e-6;
      p[i] = before + step;
      const double above = value();
      p[i] = before - step;
      const double below = value();
      p[i] = before;
      CAPTURE(name, i);
      CHECK(std::abs(gradient[i] - (above - below) / (2 * step)) <= 1e-7);
    }
  }
}

TEST_CASE("low rank: neighbours are fused as with a full layer") {
  class Branch : public Module {
   public:
    Branch()
        : Module(root(DType::f64, 3)),
          norm(scope("norm"), "layer_norm", 6),
          in(scope("in"), 6, 9, 2),
          inner(scope("inner"), 0.25),
          out(scope("out"), 9, 6, 3),
          outer(scope("outer"), 0.5) {}
    Norm norm;
    LowRankLinear in;
    Dropout inner;
    LowRankLinear out;
    Dropout outer;
  };
  const Branch b;
  const Pass pass{true, Generator(4)};
  const Variable x(normal({5, 6}, 1));
  const auto random_of = [&](double p, const char* name) {
    return DropoutOptions{p, pass.random.fork(name)};
  };
  // Two products for each layer: the first with the norm or GELU and dropout of its input, the
  // second with the dropout and the residual of the result.
  const Variable hidden =
      linear(linear(x, b.in.weight_in, {},
                    {.norm = NormOptions{.weight = b.norm.weight, .bias = *b.norm.bias}}),
             b.in.weight_out, *b.in.bias);
  const Variable narrow =
      linear(hidden, b.out.weight_in, {}, {.gelu = true, .input = random_of(0.25, "inner")});
  const Tensor fused = linear(narrow, b.out.weight_out, *b.out.bias,
                              {.output = random_of(0.5, "outer"), .residual = x})
                           .value();
  const Variable y = residual_branch(x, b.norm, NormPlace::pre, b.outer, pass, [&](const Lazy& h) {
    return b.out.forward(b.inner.forward(gelu(b.in.forward(h)), pass));
  });
  CHECK(identical(y.value(), fused));
}

TEST_CASE("low rank: the initial product has the variance of a full weight") {
  const int64_t in = 300, out = 200;
  for (const int64_t rank : {10, 150}) {
    LowRankLinear layer(root(DType::f64, 7), in, out, rank);
    const Tensor weight = product(layer.weight_out.value(), layer.weight_in.value());
    CHECK(sum_of_squares(weight) / static_cast<double>(in * out) ==
          Approx(2.0 / static_cast<double>(in + out)).epsilon(0.1));
    CHECK(sum_of_squares(layer.weight_in.value()) ==
          Approx(sum_of_squares(layer.weight_out.value())).epsilon(0.1));
  }
}

TEST_CASE("low rank: names, shapes and errors") {
  LowRankLinear layer(root(DType::f32, 1), 4, 6, 3), bare(root(), 4, 6, 3, false);
  const auto p = layer.named_parameters();
  REQUIRE(p.size() == 3);
  CHECK(p[0].first == "weight_in");
  CHECK(p[0].second.shape() == Shape{3, 4});
  CHECK(p[1].first == "weight_out");
  CHECK(p[1].second.shape() == Shape{6, 3});
  CHECK(layer.forward(Variable(Tensor::zeros({2, 5, 4}))).shape() == Shape{2, 5, 6});
  CHECK(bare.named_parameters().size() == 2);
  CHECK_THROWS_AS(LowRankLinear(root(), 4, 6, 0), ConfigError);
  CHECK_THROWS_WITH(LowRankLinear(root(), 4, 6, 5),
                    Catch::Contains("rank 5: expected 1 to 4") && Catch::Contains("from 4 to 6"));
  FeedForward mlp(root(), FeedForward::Kind::gelu, 4, 6, 0, 0, 2);
  const auto state = mlp.state_dict();
  CHECK(state.at("fc1.weight").shape() == Shape{6, 4});
  CHECK(state.at("fc2.weight_in").shape() == Shape{2, 6});
  CHECK(state.at("fc2.weight_out").shape() == Shape{4, 2});
}

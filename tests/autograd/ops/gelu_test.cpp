#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double gelu_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(gelu(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("gelu: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-1, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        gelu(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(x * std::erfc(-x / std::sqrt(2.0)) / 2)
                        .epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("gelu: gradients") {
  const auto op = [](const Variables& in) { return gelu(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("gelu: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(gelu(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(gelu(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("gelu") && Catch::Contains("i32"));
  CHECK_THROWS_AS(gelu(Variable()), ShapeError);
}

TEST_CASE("gelu: far from 0 it is 0 and x") {
  CHECK(gelu(Variable(Tensor::scalar(-50, DType::f64))).value().item() == 0);
  CHECK(gelu(Variable(Tensor::scalar(50, DType::f64))).value().item() == 50);
  CHECK(gelu_slope(-50) == 0);
  CHECK(gelu_slope(0) == 0.5);
  CHECK(gelu_slope(50) == 1);
}

TEST_CASE("gelu: as many digits in the negative tail as elsewhere") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const bool narrow = dtype == DType::f32;
    std::vector<double> in = {-5.5, -9, -3.95, -4, -1, -1e-4, 1e-4, 1, 5.5, 9, 20};
    const double lowest = narrow ? -13 : -37.5;
    for (int i = 0; i <= 3000; ++i) in.push_back(lowest + (10 - lowest) * i / 3000);
    const Tensor x = Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype);
    const auto at = x.to_vector<double>();
    // By itself, and on its way into a linear layer.
    const Variable one(Tensor::full({1, 1}, 1, dtype));
    const Op direct = [](const Variables& v) { return gelu(v[0]); };
    const Op fused = [&](const Variables& v) {
      return linear(reshape(v[0], {v[0].size(0), 1}), one, {}, {.gelu = true});
    };
    for (const Op& op : {direct, fused}) {
      const Variable leaf(x, true);
      const Variable out = op({leaf});
      backward(out, Tensor::full(out.shape(), 1, dtype));
      const auto y = out.value().to_vector<double>(), dy = leaf.grad().to_vector<double>();
      double worst = 0, worst_slope = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        const long double v = at[i], cdf = std::erfc(-v / std::sqrt(2.0L)) / 2;
        const long double density = std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0L));
        const auto error = [](double found, long double expected, long double unit) {
          return static_cast<double>(std::abs(found - expected) / unit);
        };
        if (v != 0) worst = std::max(worst, error(y[i], v * cdf, std::abs(v * cdf)));
        // The slope is 0 near -0.75: relative to its terms.
        worst_slope =
            std::max(worst_slope, error(dy[i], cdf + v * density, cdf + std::abs(v) * density));
      }
      INFO(dtype << " " << worst << " " << worst_slope);
      CHECK(worst <= (narrow ? 1e-6 : 1e-12));
      CHECK(worst_slope <= (narrow ? 1e-6 : 1e-12));
    }
  }
}

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double elu_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(elu(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("elu: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-100, -3, -0.5, -1e-5, 0, 1e-3, 0.7, 4};
    const auto out =
        elu(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(x > 0 ? x : std::expm1(x)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("elu: gradients") {
  const auto op = [](const Variables& in) { return elu(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("elu: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(elu(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(elu(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("elu") && Catch::Contains("i32"));
  CHECK_THROWS_AS(elu(Variable()), ShapeError);
}

TEST_CASE("elu: alpha") {
  for (double alpha : {0.0, 0.5, 2.0}) {
    const auto op = [alpha](const Variables& in) { return elu(in[0], alpha); };
    check_op(op, {{{7}}, {{3, 4}}});
    CHECK(op({Variable(Tensor::scalar(-1, DType::f64))}).value().item() ==
          Approx(alpha * std::expm1(-1.0)));
  }
  CHECK_THROWS_AS(elu(Variable(random({2})), -1), ConfigError);
  CHECK_THROWS_AS(elu(Variable(random({2})), std::nan("")), ConfigError);
}

TEST_CASE("elu: no digits are lost near 0, and extreme arguments") {
  const double x = -1e-5;
  const double y = elu(Variable(Tensor::scalar(x, DType::f32))).value().item();
  CHECK(y == Approx(std::expm1(static_cast<double>(static_cast<float>(x)))).epsilon(1e-6));
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(elu(Variable(Tensor::scalar(-inf))).value().item() == -1);
  CHECK(elu(Variable(Tensor::scalar(inf))).value().item() == inf);
  CHECK(elu_slope(0) == 1);
  CHECK(elu_slope(-800) == 0);
  CHECK(elu_slope(800) == 1);
}

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double log_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(log(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("log: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {1e-30, 0.3, 1, 2.5, 1e20};
    const auto out =
        log(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(std::log(x)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("log: gradients") {
  const auto op = [](const Variables& in) { return log(in[0]); };
  check_op(op, awkward_shapes(), {.low = 0.2, .high = 3});
  check_threads(op, {{3, 40001}}, {.low = 0.2, .high = 3});
}

TEST_CASE("log: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(log(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(log(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("log") && Catch::Contains("i32"));
  CHECK_THROWS_AS(log(Variable()), ShapeError);
}

TEST_CASE("log: infinite value and gradient at 0, NaN below") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(log(Variable(Tensor::scalar(0, DType::f64))).value().item() == -inf);
  CHECK(log_slope(0) == inf);
  CHECK(std::isnan(log(Variable(Tensor::scalar(-1, DType::f64))).value().item()));
}

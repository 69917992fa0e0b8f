#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double sqrt_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(sqrt(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("sqrt: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {0, 1e-30, 0.3, 1, 2.5, 1e20};
    const auto out =
        sqrt(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(std::sqrt(x)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("sqrt: gradients") {
  const auto op = [](const Variables& in) { return sqrt(in[0]); };
  check_op(op, awkward_shapes(), {.low = 0.2, .high = 3});
  check_threads(op, {{3, 40001}}, {.low = 0.2, .high = 3});
}

TEST_CASE("sqrt: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(sqrt(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(sqrt(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("sqrt") && Catch::Contains("i32"));
  CHECK_THROWS_AS(sqrt(Variable()), ShapeError);
}

TEST_CASE("sqrt: the gradient at 0 is infinite") {
  CHECK(sqrt_slope(0) == std::numeric_limits<double>::infinity());
  CHECK(sqrt_slope(4) == 0.25);
}

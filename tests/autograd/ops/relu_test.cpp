#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double relu_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(relu(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("relu: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-3, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        relu(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(std::max(x, 0.0)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("relu: gradients") {
  const auto op = [](const Variables& in) { return relu(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("relu: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(relu(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(relu(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("relu") && Catch::Contains("i32"));
  CHECK_THROWS_AS(relu(Variable()), ShapeError);
}

TEST_CASE("relu: gradient 0 at 0; NaN passes through in both directions") {
  CHECK(relu_slope(0) == 0);
  CHECK(relu_slope(1e-300) == 1);
  CHECK(relu_slope(-1e-300) == 0);
  CHECK(std::isnan(relu(Variable(Tensor::scalar(std::nan(""), DType::f64))).value().item()));
  const Variable x(Tensor::from<double>({std::nan(""), 1, -1}, {3}), true);
  backward(relu(x), Tensor::from<double>({2, std::nan(""), std::nan("")}, {3}));
  const auto dx = x.grad().to_vector<double>();
  CHECK(dx[0] == 2);
  CHECK(std::isnan(dx[1]));
  CHECK(dx[2] == 0);
}

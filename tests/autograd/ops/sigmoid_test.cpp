#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("sigmoid: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-3, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        sigmoid(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(1 / (1 + std::exp(-x))).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("sigmoid: gradients") {
  const auto op = [](const Variables& in) { return sigmoid(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("sigmoid: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(sigmoid(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(sigmoid(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("sigmoid") && Catch::Contains("i32"));
  CHECK_THROWS_AS(sigmoid(Variable()), ShapeError);
}

TEST_CASE("sigmoid: saturates without NaN") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Variable x(Tensor::from<double>({-2000, 2000}, {2}).to(dtype), true);
    CHECK(sigmoid(x).value().to_vector<double>() == std::vector<double>{0, 1});
    backward(sigmoid(x), Tensor::full({2}, 1, dtype));
    CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0});
  }
}

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double slope(double x) {
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
  CHECK(slope(-50) == 0);
  CHECK(slope(0) == 0.5);
  CHECK(slope(50) == 1);
}

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("silu: values, also of extreme arguments") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double x : {-1e4, -40.0, -3.0, -1e-3, 0.0, 0.5, 7.0, 1e4}) {
      INFO(dtype << " x " << x);
      const Variable v(Tensor::scalar(x, dtype), true), y = silu(v);
      const double s = 1 / (1 + std::exp(-x)), tolerance = dtype == DType::f32 ? 1e-6 : 1e-14;
      CHECK(y.value().item() == Approx(x * s).epsilon(tolerance).margin(1e-30));
      backward(y);
      CHECK(v.grad().item() == Approx(s * (1 + x * (1 - s))).epsilon(10 * tolerance).margin(1e-30));
    }
}

TEST_CASE("silu: gradients") {
  const auto op = [](const Variables& in) { return silu(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("silu: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(silu(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(silu(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("silu") && Catch::Contains("i32"));
}

#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("square: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-3, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        square(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(x * x).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("square: gradients") {
  const auto op = [](const Variables& in) { return square(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("square: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(square(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(square(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("square") && Catch::Contains("i32"));
  CHECK_THROWS_AS(square(Variable()), ShapeError);
}

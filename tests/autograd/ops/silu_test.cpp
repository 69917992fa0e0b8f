#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("silu: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-3, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        silu(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      INFO("x " << in[i]);
      CHECK(y[i] ==
            Approx(in[i] / (1 + std::exp(-in[i]))).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
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
  CHECK_THROWS_AS(silu(Variable()), ShapeError);
}

TEST_CASE("silu: no NaN far from 0") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const Variable x(Tensor::from<double>({-2000, 2000}, {2}).to(dtype), true);
    CHECK(silu(x).value().to_vector<double>() == std::vector<double>{0, 2000});
    backward(silu(x), Tensor::full({2}, 1, dtype));
    CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 1});
  }
}

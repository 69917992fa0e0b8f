#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("exp: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-3, -0.5, 0, 1e-3, 0.7, 4};
    const auto out =
        exp(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype))).value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] == Approx(std::exp(x)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("exp: gradients") {
  const auto op = [](const Variables& in) { return exp(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("exp: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(exp(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(exp(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("exp") && Catch::Contains("i32"));
  CHECK_THROWS_AS(exp(Variable()), ShapeError);
}

TEST_CASE("exp: extreme arguments") {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::from<double>({-inf, inf, -1000, 1000}, {4});
  CHECK(exp(Variable(x)).value().to_vector<double>() == std::vector<double>{0, inf, 0, inf});
  CHECK(std::isnan(exp(Variable(Tensor::scalar(std::nan(""), DType::f64))).value().item()));
}

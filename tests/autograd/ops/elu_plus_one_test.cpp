#include <cmath>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double elu_plus_one_slope(double x) {
  const Variable v(Tensor::scalar(x, DType::f64), true);
  backward(elu_plus_one(v));
  return v.grad().item();
}

}  // namespace

TEST_CASE("elu_plus_one: values") {
  for (DType dtype : {DType::f32, DType::f64}) {
    const std::vector<double> in = {-30, -3, -0.5, -1e-5, 0, 1e-3, 0.7, 4};
    const auto out =
        elu_plus_one(Variable(Tensor::from(in, {static_cast<int64_t>(in.size())}).to(dtype)))
            .value();
    CHECK(out.dtype() == dtype);
    const auto y = out.to_vector<double>();
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = in[i];
      INFO("x " << x);
      CHECK(y[i] ==
            Approx(x > 0 ? x + 1 : std::exp(x)).epsilon(dtype == DType::f32 ? 1e-6 : 1e-14));
    }
  }
}

TEST_CASE("elu_plus_one: gradients") {
  const auto op = [](const Variables& in) { return elu_plus_one(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
}

TEST_CASE("elu_plus_one: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(elu_plus_one(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(elu_plus_one(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("elu_plus_one") && Catch::Contains("i32"));
  CHECK_THROWS_AS(elu_plus_one(Variable()), ShapeError);
}

TEST_CASE("elu_plus_one: stays positive where 1 + elu would be 0, and extreme arguments") {
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(elu_plus_one(Variable(Tensor::scalar(-30))).value().item() > 0);
  CHECK(elu_plus_one(Variable(Tensor::scalar(-inf))).value().item() == 0);
  CHECK(elu_plus_one(Variable(Tensor::scalar(inf))).value().item() == inf);
  CHECK(elu_plus_one_slope(0) == 1);
  CHECK(elu_plus_one_slope(-30) == Approx(std::exp(-30.0)));
  CHECK(elu_plus_one_slope(1e4) == 1);
}

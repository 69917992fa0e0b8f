#include <cmath>
#include <limits>

#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

namespace {

double of(double x, DType dtype) {
  return softplus(Variable(Tensor::scalar(x, dtype))).value().item();
}

}  // namespace

TEST_CASE("softplus: values are accurate relative to themselves, down to e^-80") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    double worst = 0;
    for (double x = -80; x <= 80; x += 0.37) {
      const double given = dtype == DType::f32 ? static_cast<double>(static_cast<float>(x)) : x;
      const double exact =
          given > 0 ? given + std::log1p(std::exp(-given)) : std::log1p(std::exp(given));
      worst = std::max(worst, std::abs(of(given, dtype) / exact - 1));
    }
    INFO(dtype << ": " << worst);
    CHECK(worst < (dtype == DType::f32 ? 4e-7 : 1e-15));
    CHECK(of(0, dtype) == Approx(std::log(2.0)).epsilon(dtype == DType::f32 ? 1e-7 : 1e-15));
    CHECK(of(1e4, dtype) == 1e4);
    CHECK(of(-1e4, dtype) == 0);
    CHECK(of(-std::numeric_limits<double>::infinity(), dtype) == 0);
    CHECK(std::isnan(of(std::numeric_limits<double>::quiet_NaN(), dtype)));
  }
}

TEST_CASE("softplus: gradients") {
  const auto op = [](const Variables& in) { return softplus(in[0]); };
  check_op(op, awkward_shapes());
  check_threads(op, {{3, 40001}});
  const Variable large(Tensor::scalar(1e4), true), small(Tensor::scalar(-1e4), true);
  backward(softplus(large) + softplus(small));
  CHECK(large.grad().item() == 1);
  CHECK(small.grad().item() == 0);
}

TEST_CASE("softplus: keeps the order of axes, and errors name it") {
  const Variable x(random({3, 4}).transpose(0, 1));
  CHECK(softplus(x).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(softplus(Variable(Tensor::zeros({2}, DType::i32))),
                    Catch::Contains("softplus") && Catch::Contains("i32"));
}

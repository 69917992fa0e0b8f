#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("log_softmax: values") {
  const Variable x(Tensor::from<double>({0, std::log(3), 1000, 1000}, {2, 2}));
  CHECK(close(
      log_softmax(x).value(),
      Tensor::from<double>({std::log(0.25), std::log(0.75), std::log(0.5), std::log(0.5)}, {2, 2}),
      1e-15));
  // The softmax itself would round to 0.
  const Variable far(Tensor::from<float>({0, -1000}, {2}));
  CHECK(log_softmax(far).value().to_vector<float>() == std::vector<float>{0, -1000});
}

TEST_CASE("log_softmax: masked elements, and NaN") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Variable x(Tensor::from<double>({-inf, -inf, 1, -inf, nan, 1, inf, 1}, {4, 2}), true);
  const Variable y = log_softmax(x);
  const auto values = y.value().to_vector<double>();
  CHECK(std::vector<double>(values.begin(), values.begin() + 4) ==
        std::vector<double>{-inf, -inf, 0, -inf});
  for (size_t i = 4; i < 8; ++i) CHECK(std::isnan(values[i]));
  backward(y, Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}));
  const auto grads = x.grad().to_vector<double>();
  CHECK(grads[0] == 0);
  CHECK(grads[1] == 0);
  CHECK(grads[2] == 3 - 7);
}

TEST_CASE("log_softmax: errors") {
  CHECK_THROWS_WITH(log_softmax(Variable(Tensor::scalar(1))), Catch::Contains("log_softmax"));
}

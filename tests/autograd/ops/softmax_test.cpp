#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("softmax: values") {
  const Variable x(Tensor::from<double>({0, std::log(3), 5, 5}, {2, 2}));
  CHECK(close(softmax(x).value(), Tensor::from<double>({0.25, 0.75, 0.5, 0.5}, {2, 2}), 1e-15));
  // Rows of any magnitude.
  const Variable large(Tensor::from<float>({1e30f, 1e30f, -1e30f, -1e30f}, {2, 2}));
  CHECK(softmax(large).value().to_vector<float>() == std::vector<float>{0.5, 0.5, 0.5, 0.5});
}

TEST_CASE("softmax: masked elements, and NaN") {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Variable x(
      Tensor::from<double>({-inf, -inf, -inf, 1, -inf, 1, nan, 1, -inf, inf, 1, 2}, {4, 3}), true);
  const Variable y = softmax(x);
  const auto values = y.value().to_vector<double>();
  CHECK(std::vector<double>(values.begin(), values.begin() + 6) ==
        std::vector<double>{0, 0, 0, 0.5, 0, 0.5});
  for (size_t i = 6; i < 12; ++i) CHECK(std::isnan(values[i]));
  backward(y, random({4, 3}));
  const auto grads = x.grad().to_vector<double>();
  for (size_t i : {0, 1, 2, 4}) CHECK(grads[i] == 0);
  CHECK(std::isfinite(grads[3]));
}

TEST_CASE("softmax: errors") {
  CHECK_THROWS_WITH(softmax(Variable(Tensor::scalar(1))), Catch::Contains("softmax"));
}

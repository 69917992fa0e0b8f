#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("affine: values, and the operators that call it") {
  const Variable x(Tensor::from<double>({-1, 0, 2.5}, {3}));
  const auto is = [](const Variable& v, std::vector<double> want) {
    CHECK(v.value().to_vector<double>() == want);
  };
  is(affine(x, 3, 1), {-2, 1, 8.5});
  is(affine(x, 3), {-3, 0, 7.5});
  is(x + 2.0, {1, 2, 4.5});
  is(2.0 + x, {1, 2, 4.5});
  is(x - 2.0, {-3, -2, 0.5});
  is(2.0 - x, {3, 2, -0.5});
  is(x * 2.0, {-2, 0, 5});
  is(2.0 * x, {-2, 0, 5});
  is(x / 2.0, {-0.5, 0, 1.25});
  is(-x, {1, 0, -2.5});
}

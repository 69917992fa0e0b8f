#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("rms_norm: values") {
  const Variable x(Tensor::from<double>({3, 4, 0, 0}, {2, 2}));
  const Variable w(Tensor::from<double>({10, 1}, {2}));
  const double r = 1 / std::sqrt(12.5 + 0.5);
  CHECK(close(rms_norm(x, w, 0.5).value(), Tensor::from<double>({30 * r, 4 * r, 0, 0}, {2, 2}),
              1e-15));
}

TEST_CASE("rms_norm: errors") {
  CHECK_THROWS_WITH(rms_norm(Variable(random({2, 3})), Variable(random({2}))),
                    Catch::Contains("rms_norm"));
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("cumsum: values") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(cumsum(x, 1).value().to_vector<double>() == std::vector<double>{1, 3, 6, 4, 9, 15});
  CHECK(cumsum(x, 1, true).value().to_vector<double>() == std::vector<double>{6, 5, 3, 15, 11, 6});
  CHECK(cumsum(x, -2).value().to_vector<double>() == std::vector<double>{1, 2, 3, 5, 7, 9});
  const Variable permuted(random({2, 4, 3, 70}).transpose(1, 2));
  CHECK(cumsum(permuted, 2).value().strides() == permuted.value().strides());
}

TEST_CASE("cumsum: errors") { CHECK_THROWS_AS(cumsum(Variable(random({3})), 1), ShapeError); }

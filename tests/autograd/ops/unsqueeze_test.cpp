#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("unsqueeze: shapes") {
  const Variable x(random({2, 3}));
  CHECK(unsqueeze(x, 0).shape() == Shape{1, 2, 3});
  CHECK(unsqueeze(x, 1).shape() == Shape{2, 1, 3});
  CHECK(unsqueeze(x, 2).shape() == Shape{2, 3, 1});
  CHECK(unsqueeze(x, -1).shape() == Shape{2, 3, 1});
  CHECK(unsqueeze(x, -3).shape() == Shape{1, 2, 3});
  CHECK(unsqueeze(x, 1).value().shares_memory_with(x.value()));
  CHECK_THROWS_AS(unsqueeze(x, 3), ShapeError);
  CHECK_THROWS_AS(unsqueeze(x, -4), ShapeError);
  CHECK_THROWS_AS(unsqueeze(Variable(random({1, 1, 1, 1, 1, 1})), 0), ShapeError);
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("select: values") {
  const Variable x(random({2, 3, 4}));
  const Variable y = select(x, 1, -1);
  CHECK(y.shape() == Shape{2, 4});
  CHECK(y.value().shares_memory_with(x.value()));
  CHECK(identical(y.value(), x.value().select(1, 2)));
}

TEST_CASE("select: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(select(x, 1, 3), Catch::Contains("select") && Catch::Contains("[2, 3]"));
  CHECK_THROWS_AS(select(x, 1, -4), ShapeError);
  CHECK_THROWS_AS(select(x, 2, 0), ShapeError);
  CHECK_THROWS_AS(select(Variable(random({})), 0, 0), ShapeError);
}

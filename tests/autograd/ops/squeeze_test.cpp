#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("squeeze: shapes") {
  const Variable x(random({1, 3, 1}));
  CHECK(squeeze(x, 0).shape() == Shape{3, 1});
  CHECK(squeeze(x, -1).shape() == Shape{1, 3});
  CHECK(squeeze(x, 0).value().shares_memory_with(x.value()));
  CHECK_THROWS_WITH(squeeze(x, 1), Catch::Contains("squeeze") && Catch::Contains("[1, 3, 1]"));
  CHECK_THROWS_AS(squeeze(x, 3), ShapeError);
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("permute: a view") {
  const Variable x(random({2, 3, 4, 5}));
  const Variable y = permute(x, {2, 0, -1, 1});
  CHECK(y.shape() == Shape{4, 2, 5, 3});
  CHECK(y.value().shares_memory_with(x.value()));
  CHECK(y.value().at({3, 1, 4, 2}) == x.value().at({1, 2, 3, 4}));
}

TEST_CASE("permute: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_AS(permute(x, {0}), ShapeError);
  CHECK_THROWS_AS(permute(x, {0, 0}), ShapeError);
  CHECK_THROWS_AS(permute(x, {0, 2}), ShapeError);
}

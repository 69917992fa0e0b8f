#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("slice: a view; negative bounds count from the end") {
  const Variable x(Tensor::from<double>({0, 1, 2, 3, 4, 5, 6}, {7}));
  const auto is = [](const Variable& v, std::vector<double> want) {
    CHECK(v.value().to_vector<double>() == want);
  };
  is(slice(x, 0, 1, 4), {1, 2, 3});
  is(slice(x, -1, -3, 7), {4, 5, 6});
  is(slice(x, 0, 0, -1, 2), {0, 2, 4});
  is(slice(x, 0, 1, 7, 3), {1, 4});
  is(slice(x, 0, 3, 3), {});
  CHECK(slice(x, 0, 1, 4).value().shares_memory_with(x.value()));
}

TEST_CASE("slice: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(slice(x, 1, 2, 5), Catch::Contains("slice") && Catch::Contains("[2, 3]"));
  CHECK_THROWS_AS(slice(x, 1, 2, 1), ShapeError);
  CHECK_THROWS_AS(slice(x, 1, -4, 1), ShapeError);
  CHECK_THROWS_AS(slice(x, 1, 0, 3, 0), ShapeError);
  CHECK_THROWS_AS(slice(x, 2, 0, 1), ShapeError);
}

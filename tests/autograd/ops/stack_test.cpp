#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("stack: values") {
  const Variable a(Tensor::from<double>({1, 2, 3}, {3})), b(Tensor::from<double>({4, 5, 6}, {3}));
  CHECK(stack({a, b}, 0).shape() == Shape{2, 3});
  CHECK(stack({a, b}, 0).value().to_vector<double>() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(stack({a, b}, 1).shape() == Shape{3, 2});
  CHECK(stack({a, b}, -1).value().to_vector<double>() == std::vector<double>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("stack: errors") {
  CHECK_THROWS_AS(stack({}, 0), ShapeError);
  CHECK_THROWS_WITH(stack({Variable(random({2})), Variable(random({3}))}, 0),
                    Catch::Contains("stack") && Catch::Contains("[2]") && Catch::Contains("[3]"));
  CHECK_THROWS_AS(stack({Variable(random({2}))}, 2), ShapeError);
}

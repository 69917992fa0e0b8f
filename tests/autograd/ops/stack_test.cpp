#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("stack: values") {
  const Variable a(Tensor::from<double>({1, 2, 3}, {3})), b(Tensor::from<double>({4, 5, 6}, {3}));
  CHECK(stack({a, b}, 0).shape() == Shape{2, 3});
  CHECK(stack({a, b}, 0).value().to_vector<double>() == std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(stack({a, b}, 1).shape() == Shape{3, 2});
  CHECK(stack({a, b}, -1).value().to_vector<double>() == std::vector<double>{1, 4, 2, 5, 3, 6});
}

TEST_CASE("stack: gradients") {
  check_op([](const Variables& in) { return stack(in, 0); },
           {{{}, {}}, {{3}, {3}, {3}}, {{0}, {0}}, {{2, 3}, {2, 3}}});
  check_op([](const Variables& in) { return stack(in, -1); },
           {{{}}, {{3}, {3}}, {{2, 1, 3}, {2, 1, 3}}});
  check_op([](const Variables& in) { return stack({in[0], in[0]}, 1); }, {{{3}}, {{2, 3}}});
}

TEST_CASE("stack: errors") {
  CHECK_THROWS_AS(stack({}, 0), ShapeError);
  CHECK_THROWS_WITH(stack({Variable(random({2})), Variable(random({3}))}, 0),
                    Catch::Contains("stack") && Catch::Contains("[2]") && Catch::Contains("[3]"));
  CHECK_THROWS_AS(stack({Variable(random({2}))}, 2), ShapeError);
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("concat: values") {
  const Variable a(Tensor::from<double>({1, 2, 3, 4}, {2, 2})),
      b(Tensor::from<double>({5, 6}, {2, 1}));
  const Variable y = concat({a, b, a}, 1);
  CHECK(y.shape() == Shape{2, 5});
  CHECK(y.value().to_vector<double>() == std::vector<double>{1, 2, 5, 1, 2, 3, 4, 6, 3, 4});
  CHECK(concat({a, transpose(b, 0, 1)}, 0).value().to_vector<double>() ==
        std::vector<double>{1, 2, 3, 4, 5, 6});
  CHECK(concat({a}, 0).shape() == a.shape());
  CHECK(identical(concat({Variable(Tensor::from<int32_t>({1, 2}, {2})),
                          Variable(Tensor::from<int32_t>({3}, {1}))},
                         0)
                      .value(),
                  Tensor::from<int32_t>({1, 2, 3}, {3})));
  CHECK(concat({Variable(random({3, 4}).transpose(0, 1)), Variable(random({1, 3}))}, 0)
            .value()
            .strides() == Strides{1, 5});
}

TEST_CASE("concat: errors") {
  const Variable a(random({2, 3}));
  CHECK_THROWS_AS(concat({}, 0), ShapeError);
  CHECK_THROWS_AS(concat({a}, 2), ShapeError);
  CHECK_THROWS_WITH(concat({a, Variable(random({3, 3}))}, 1), Catch::Contains("concat") &&
                                                                  Catch::Contains("[2, 3]") &&
                                                                  Catch::Contains("[3, 3]"));
  CHECK_THROWS_AS(concat({a, Variable(random({2}))}, 0), ShapeError);
}

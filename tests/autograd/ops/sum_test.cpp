#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("sum: values and shapes") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(sum(x).value().item() == 21);
  CHECK(sum(x).shape() == Shape{});
  CHECK(sum(x, {}, true).shape() == Shape{1, 1});
  CHECK(sum(x, {0}).value().to_vector<double>() == std::vector<double>{5, 7, 9});
  CHECK(sum(x, {-1}).value().to_vector<double>() == std::vector<double>{6, 15});
  CHECK(sum(x, {1}, true).shape() == Shape{2, 1});
  CHECK(sum(x, {1, 0}).value().item() == 21);
  CHECK(sum(Variable(Tensor::zeros({2, 0}, DType::f64)), {1}).value().to_vector<double>() ==
        std::vector<double>{0, 0});
  // The remaining axes keep their memory order.
  const Variable permuted(random({2, 3, 4, 5}).permute({0, 2, 1, 3}));
  CHECK(sum(permuted, {3}).value().strides() == Strides{12, 1, 4});
}

TEST_CASE("sum: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_AS(sum(x, {2}), ShapeError);
  CHECK_THROWS_WITH(sum(x, {1, -1}), Catch::Contains("sum") && Catch::Contains("twice"));
}

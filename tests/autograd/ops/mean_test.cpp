#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("mean: values and shapes") {
  const Variable x(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  CHECK(mean(x).value().item() == 3.5);
  CHECK(mean(x, {0}).value().to_vector<double>() == std::vector<double>{2.5, 3.5, 4.5});
  CHECK(mean(x, {-1}, true).shape() == Shape{2, 1});
  CHECK(mean(x, {-1}).value().to_vector<double>() == std::vector<double>{2, 5});
  // The mean of equal numbers is that number: the sum is divided, not multiplied by a rounded 1/49.
  CHECK(mean(Variable(Tensor::full({49}, 1.0))).value().item() == 1);
  CHECK(mean(Variable(Tensor::zeros({0, 3}, DType::f64)), {1}).shape() == Shape{0});
}

TEST_CASE("mean: errors") {
  const Variable empty(Tensor::zeros({3, 0}, DType::f64));
  CHECK_THROWS_WITH(mean(empty), Catch::Contains("mean") && Catch::Contains("[3, 0]"));
  CHECK_THROWS_AS(mean(empty, {1}), ShapeError);
  CHECK_THROWS_AS(mean(empty, {0, 0}), ShapeError);
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("broadcast_to: a view of stride 0") {
  const Variable x(Tensor::from<double>({1, 2, 3}, {3, 1}), true);
  const Variable y = broadcast_to(x, {2, 3, 4});
  CHECK(y.value().shares_memory_with(x.value()));
  CHECK(y.value().strides()[0] == 0);
  CHECK(y.value().at({1, 2, 3}) == 3);
  // Broadcasting to its own shape returns the variable itself.
  CHECK(broadcast_to(x, {3, 1}).value().shares_memory_with(x.value()));
  backward(y, Tensor::full({2, 3, 4}, 1, DType::f64));
  CHECK(x.grad().to_vector<double>() == std::vector<double>{8, 8, 8});
}

TEST_CASE("broadcast_to: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(broadcast_to(x, {3, 3}), Catch::Contains("broadcast_to") &&
                                                 Catch::Contains("[2, 3]") &&
                                                 Catch::Contains("[3, 3]"));
  CHECK_THROWS_AS(broadcast_to(x, {3}), ShapeError);
  CHECK_THROWS_AS(broadcast_to(x, {3, 2}), ShapeError);
}

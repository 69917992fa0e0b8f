#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

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

TEST_CASE("broadcast_to: gradients") {
  check_op(
      [](const Variables& in) {
        return broadcast_to(in[0], {2, 3, 4});
      },
      {{{}},
       {{1}},
       {{4}},
       {{3, 1}},
       {{1, 4}},
       {{3, 4}},
       {{2, 1, 1}},
       {{1, 3, 1}},
       {{2, 1, 4}},
       {{2, 3, 4}},
       {{1, 1, 1}}});
  check_op(
      [](const Variables& in) {
        return broadcast_to(in[0], {3, 0});
      },
      {{{}}, {{3, 1}}, {{0}}, {{1}}});
  check_op([](const Variables& in) { return broadcast_to(in[0], {1, 5}); }, {{{5}}, {{1}}, {{}}});
  check_op(
      [](const Variables& in) {
        return square(broadcast_to(in[0], {2, 3, 2, 2}));
      },
      {{{2}}, {{3, 1, 2}}});
}

TEST_CASE("broadcast_to: sums do not depend on threads, and f32 ones keep their digits") {
  const auto op = [](const Variables& in) { return broadcast_to(in[0], {300, 401}) * in[1]; };
  check_threads(op, {{401}, {300, 401}});
  check_threads(op, {{300, 1}, {300, 401}});
  check_threads(op, {{}, {300, 401}});
  const Variable x(Tensor::scalar(0), true);
  backward(broadcast_to(x, {1000003}), Tensor::full({1000003}, 0.1));
  CHECK(x.grad().item() == Approx(100000.3).epsilon(1e-6));
}

TEST_CASE("broadcast_to: errors") {
  const Variable x(random({2, 3}));
  CHECK_THROWS_WITH(broadcast_to(x, {3, 3}), Catch::Contains("broadcast_to") &&
                                                 Catch::Contains("[2, 3]") &&
                                                 Catch::Contains("[3, 3]"));
  CHECK_THROWS_AS(broadcast_to(x, {3}), ShapeError);
  CHECK_THROWS_AS(broadcast_to(x, {3, 2}), ShapeError);
  CHECK_THROWS_AS(broadcast_to(Variable(), {3}), ShapeError);
}

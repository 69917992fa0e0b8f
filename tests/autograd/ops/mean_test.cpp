#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

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

TEST_CASE("mean: gradients") {
  std::vector<Case> cases = awkward_shapes();
  std::erase_if(cases, [](const Case& c) { return c[0].numel() == 0; });
  check_op([](const Variables& in) { return mean(in[0]); }, cases);
  check_op([](const Variables& in) { return mean(in[0], {-1}); },
           {{{7}}, {{1, 5}}, {{5, 1}}, {{0, 3}}, {{3, 4}}, {{2, 3, 5}}});
  check_op(
      [](const Variables& in) {
        return mean(in[0], {0, 2}, true);
      },
      {{{2, 3, 5}}, {{2, 1, 3, 2}}});
  check_op([](const Variables& in) { return square(mean(square(in[0]), {1})); }, {{{2, 3, 5}}});
  check_threads([](const Variables& in) { return mean(in[0], {1}); }, {{30, 40, 101}});
}

TEST_CASE("mean: errors") {
  const Variable empty(Tensor::zeros({3, 0}, DType::f64));
  CHECK_THROWS_WITH(mean(empty), Catch::Contains("mean") && Catch::Contains("[3, 0]"));
  CHECK_THROWS_AS(mean(empty, {1}), ShapeError);
  CHECK_THROWS_AS(mean(empty, {0, 0}), ShapeError);
}

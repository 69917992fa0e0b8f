#include "longhand/autograd/ops.h"
#include "tests/support/gradcheck.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("affine: values, and the operators that call it") {
  const Variable x(Tensor::from<double>({-1, 0, 2.5}, {3}));
  const auto is = [](const Variable& v, std::vector<double> want) {
    CHECK(v.value().to_vector<double>() == want);
  };
  is(affine(x, 3, 1), {-2, 1, 8.5});
  is(affine(x, 3), {-3, 0, 7.5});
  is(x + 2.0, {1, 2, 4.5});
  is(2.0 + x, {1, 2, 4.5});
  is(x - 2.0, {-3, -2, 0.5});
  is(2.0 - x, {3, 2, -0.5});
  is(x * 2.0, {-2, 0, 5});
  is(2.0 * x, {-2, 0, 5});
  is(x / 2.0, {-0.5, 0, 1.25});
  is(-x, {1, 0, -2.5});
}

TEST_CASE("affine: gradients") {
  for (double scale : {1.0, 0.0, -2.5}) {
    const auto op = [scale](const Variables& in) { return affine(in[0], scale, 0.7); };
    check_op(op, awkward_shapes());
    check_threads(op, {{3, 40001}});
  }
}

TEST_CASE("affine: keeps the order of axes, and errors name it") {
  CHECK(affine(Variable(random({3, 4}).transpose(0, 1)), 2).value().strides() == Strides{1, 4});
  CHECK_THROWS_WITH(affine(Variable(Tensor::zeros({2}, DType::i32)), 2),
                    Catch::Contains("affine") && Catch::Contains("i32"));
}

#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// The heads of (B, N, H, D) memory, as attention uses them.
Variable heads(const Variable& x) { return transpose(x, 1, 2); }

}  // namespace

TEST_CASE("matmul: values") {
  const Variable a(Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3}));
  const Variable b(Tensor::from<double>({1, 0, 0, 1, 2, -1}, {3, 2}));
  CHECK(matmul(a, b, 10).value().to_vector<double>() == std::vector<double>{70, -10, 160, -10});
  CHECK(matmul(Variable(Tensor::zeros({2, 0}, DType::f64)),
               Variable(Tensor::zeros({0, 3}, DType::f64)))
            .value()
            .to_vector<double>() == std::vector<double>(6, 0.0));
}

TEST_CASE("matmul: heads are multiplied without copies and keep their memory order") {
  const Variable q(random({2, 5, 3, 4}), true), k(random({2, 7, 3, 4}), true);
  const Variable p = matmul(heads(q), transpose(heads(k), 2, 3));
  CHECK(p.shape() == Shape{2, 3, 5, 7});
  CHECK(p.value().strides() == Strides{105, 7, 21, 1});
  const Variable out = matmul(p, heads(k));
  CHECK(transpose(out, 1, 2).value().is_contiguous());
  backward(out, random({2, 3, 5, 4}));
  CHECK(q.grad().is_contiguous());
}

TEST_CASE("matmul: errors") {
  const Variable a(random({2, 3}));
  CHECK_THROWS_WITH(matmul(a, a), Catch::Contains("matmul") && Catch::Contains("[2, 3]"));
  CHECK_THROWS_AS(matmul(a, Variable(random({3}))), ShapeError);
  CHECK_THROWS_AS(matmul(Variable(random({2, 2, 3})), Variable(random({3, 3, 2}))), ShapeError);
}

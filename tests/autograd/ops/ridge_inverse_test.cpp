#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

TEST_CASE("ridge_inverse: solves (AᵀA + εI) Z = Aᵀ") {
  for (const auto& [m, n] : {std::pair{4, 4}, {6, 3}, {1, 1}}) {
    for (const double eps : {2.0, 1e-6}) {
      INFO(m << " x " << n << ", " << eps);
      const Variable A(random({2, m, n})), Z = ridge_inverse(A, eps), At = transpose(A, -2, -1);
      REQUIRE(Z.shape() == Shape{2, n, m});
      CHECK(close((matmul(At, matmul(A, Z)) + Z * eps).value(), At.value(), 1e-12));
    }
  }
  const Variable A(random({3, 3}));
  CHECK(close(ridge_inverse(A, 1e-14).value(), pinv(A).value(), 1e-9));
}

TEST_CASE("ridge_inverse: errors") {
  CHECK_THROWS_AS(ridge_inverse(Variable(random({2, 3})), 1), ShapeError);
  CHECK_THROWS_AS(ridge_inverse(Variable(random({3})), 1), ShapeError);
  CHECK_THROWS_AS(ridge_inverse(Variable(random({3, 3})), 0), ShapeError);
}

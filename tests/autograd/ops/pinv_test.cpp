#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// A matrix (m, n) with the given singular values; the others are 0.
Tensor of_values(int64_t m, int64_t n, const std::vector<double>& values) {
  const Tensor u = qr(random({m, m}, DType::f64, -1, 1, 3)).q, v = qr(random({n, n})).q;
  Tensor s = Tensor::zeros({m, n}, DType::f64);
  for (size_t i = 0; i < values.size(); ++i) s.data<double>()[i * n + i] = values[i];
  return matmul(matmul(Variable(u), Variable(s)), Variable(v)).value();
}

}  // namespace

TEST_CASE("pinv: the four conditions of Penrose") {
  for (const auto& [m, n] : {std::pair{4, 4}, {6, 3}, {2, 5}, {1, 1}}) {
    INFO(m << " x " << n);
    const Variable A(random({2, m, n})), P = pinv(A);
    REQUIRE(P.shape() == Shape{2, n, m});
    const Variable AP = matmul(A, P), PA = matmul(P, A);
    CHECK(close(matmul(AP, A).value(), A.value(), 1e-12));
    CHECK(close(matmul(PA, P).value(), P.value(), 1e-12));
    CHECK(close(transpose(AP, -2, -1).value(), AP.value(), 1e-12));
    CHECK(close(transpose(PA, -2, -1).value(), PA.value(), 1e-12));
  }
}

TEST_CASE("pinv: gradients of rank-deficient matrices, for changes that preserve the rank") {
  // A = B C is 5 x 4 and of rank 2; the rank stays the same as B and C change.
  const GradcheckReport report =
      gradcheck([](const Variables& in) { return pinv(matmul(in[0], in[1]), 1e-9); },
                {random({5, 2}, DType::f64, -2, 2, 1), random({2, 4}, DType::f64, -2, 2, 2)});
  INFO(report);
  CHECK(report.ok);
}

TEST_CASE("pinv: the condition number does not multiply the rounding of f32") {
  for (const auto& [m, n] : {std::pair{5, 5}, {6, 4}, {4, 6}}) {
    INFO(m << " x " << n);
    const Tensor a = of_values(m, n, {2, 1, 0.1, 1e-4}).to(DType::f32);
    const std::vector<Tensor> found = run([](const Variables& in) { return pinv(in[0]); }, {a}, 2);
    const std::vector<Tensor> exact =
        run([](const Variables& in) { return pinv(in[0], 1e-6); }, {a.to(DType::f64)}, 2);
    for (const size_t i : {0, 1}) {
      const double size = max(reshape(Variable(exact[i]), {-1}), 0).value().item();
      CHECK(close((Variable(found[i].to(DType::f64)) * (1 / size)).value(),
                  (Variable(exact[i]) * (1 / size)).value(), 1e-6));
    }
  }
}

TEST_CASE("pinv: singular values at or below the tolerance count as 0") {
  const Tensor a = of_values(4, 4, {2, 1, 1e-3, 0});
  CHECK(close(pinv(Variable(a), 1e-2).value(), pinv(Variable(of_values(4, 4, {2, 1}))).value(),
              1e-9));
  CHECK_FALSE(close(pinv(Variable(a), 1e-4).value(), pinv(Variable(a), 1e-2).value(), 1));
  CHECK_THROWS_AS(pinv(Variable(random({3}))), ShapeError);
  CHECK_THROWS_AS(pinv(Variable(random({3, 0}))), ShapeError);
}

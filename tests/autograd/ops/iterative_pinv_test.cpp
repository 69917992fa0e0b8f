#include "longhand/autograd/ops.h"
#include "tests/support/op_check.h"

using namespace longhand;
using namespace longhand::test;

namespace {

// Matrices (…, m, m) near the identity, for which the transposes are suitable start values.
Tensor near_identity(const Shape& shape, uint64_t seed, DType dtype = DType::f64) {
  Tensor a = random(shape, dtype, -0.1, 0.1, seed);
  const int64_t m = shape[-1];
  Tensor diagonal = a.reshape({a.numel() / (m * m), m * m}).slice(1, 0, m * m, m + 1);
  copy_into(diagonal, affine(Variable(diagonal), 1, 0.5).value());
  return a;
}

Variable composed(const Variable& a, const Variable& start, int64_t iterations) {
  const int64_t m = a.size(-1);
  Tensor identity = Tensor::zeros({m, m}, a.dtype());
  identity.reshape({m * m}).slice(0, 0, m * m, m + 1).fill(1);
  const Variable I(identity);
  Variable Z = start;
  for (int64_t i = 0; i < iterations; ++i) {
    const Variable AZ = matmul(a, Z);
    const Variable inner = affine(I, 15) - matmul(AZ, affine(I, 7) - AZ);
    Z = affine(matmul(Z, affine(I, 13) - matmul(AZ, inner)), 0.25);
  }
  return Z;
}

}  // namespace

TEST_CASE("iterative_pinv: the composition of products, with its gradients") {
  for (const Shape& shape : {Shape{5, 5}, Shape{2, 3, 33, 33}, Shape{2, 70, 70}, Shape{1, 1}}) {
    INFO(shape);
    const Tensor seed = random(shape, DType::f64, -1, 1, 3);
    Tensor out[2], da[2], dz[2];
    for (const bool fused : {false, true}) {
      const Variable a(near_identity(shape, 1), true);
      const Variable z(near_identity(shape, 2), true);
      const Variable y = fused ? iterative_pinv(a, z, 4) : composed(a, z, 4);
      backward(y, seed);
      out[fused] = y.value(), da[fused] = a.grad(), dz[fused] = z.grad();
    }
    CHECK(close(out[1], out[0], 1e-11));
    CHECK(close(da[1], da[0], 1e-9));
    CHECK(close(dz[1], dz[0], 1e-9));
  }
}

TEST_CASE("iterative_pinv: converges to the inverse") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = near_identity({3, 40, 40}, 1, dtype);
    const Variable z = iterative_pinv(Variable(a), Variable(a.transpose(1, 2)), 20);
    CHECK(close(z.value(), pinv(Variable(a)).value(), dtype == DType::f32 ? 1e-4 : 1e-11));
  }
}

TEST_CASE("iterative_pinv: zero iterations return the start; errors") {
  const Variable a(random({2, 3, 3})), z(random({2, 3, 3}));
  CHECK(identical(iterative_pinv(a, z, 0).value(), z.value()));
  CHECK_THROWS_AS(iterative_pinv(a, Variable(random({3, 3})), 1), ShapeError);
  CHECK_THROWS_AS(iterative_pinv(Variable(random({3, 2})), Variable(random({3, 2})), 1),
                  ShapeError);
  CHECK_THROWS_AS(iterative_pinv(a, z, -1), ConfigError);
}

// P = A⁺          dA = -Pᵀ dP Pᵀ + (I - A P) dPᵀ P Pᵀ + Pᵀ P dPᵀ (I - P A)
//
// if the rank is constant near A (Golub & Pereyra 1973). A P and P A are off by the rounding times
// cond(A); for A = U S Vᵀ with as many columns as the rank, U Uᵀ and V Vᵀ are the same projections,
// and orthonormal columns keep the digits. With B = dPᵀ V, M = Uᵀ B and R = S⁻¹,
//
//   dA = (B R² - U (M R² + R Mᵀ R)) Vᵀ + U R² (Uᵀ dPᵀ - M Vᵀ)
#include <algorithm>
#include <limits>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand {
using namespace ops;

Variable pinv(const Variable& a, double tolerance) {
  check_float("pinv", a);
  check<ShapeError>(a.rank() >= 2 && a.size(-2) >= 1 && a.size(-1) >= 1,
                    "pinv: expected non-empty matrices (…, m, n), got ", a.shape());
  const int64_t m = a.size(-2), n = a.size(-1), count = a.value().numel() / (m * n);
  const int64_t k = std::min(m, n);
  // In double precision: the vectors in f32 are also off by the rounding times cond(A).
  const bool rounded = a.dtype() == DType::f32;
  const double noise = static_cast<double>(std::max(m, n)) * std::numeric_limits<float>::epsilon(),
               least = rounded ? std::max(tolerance, noise) : tolerance;
  const auto matrices = [&](int64_t rows, int64_t columns) {
    Shape shape = a.shape();
    shape[-2] = rows, shape[-1] = columns;
    return Tensor::empty(shape, a.dtype());
  };
  Tensor out = matrices(n, m), U = matrices(m, k), Vt = matrices(k, n), R = matrices(1, k);
  const Tensor from = a.value().contiguous().reshape({count, m, n});
  parallel_for_each(count, 1, [&](int64_t i) {
    const auto keep = [&](const Tensor& all, const Tensor& x) {
      copy_into(all.reshape({count, x.numel()}).select(0, i), x.reshape({x.numel()}));
    };
    const Svd d = inverted_svd(from.select(0, i).to(DType::f64), least);
    keep(out, pseudo_inverse(d)), keep(U, d.u), keep(Vt, d.vt), keep(R, d.s);
  });
  return record("pinv", out, {a}, [=](const Tensor& grad_out, std::span<GradSlot> grad_in) {
    const Variable u(U), vt(Vt), r(R), dP(grad_out);
    const Variable ut = transpose(u, -2, -1), rt = transpose(r, -2, -1),
                   dPt = transpose(dP, -2, -1);
    const Variable B = matmul(dPt, transpose(vt, -2, -1)), M = matmul(ut, B);
    const Variable left = B * r * r - matmul(u, M * r * r + transpose(M, -2, -1) * r * rt);
    const Variable right = rt * rt * (matmul(ut, dPt) - matmul(M, vt));
    grad_in[0].take((matmul(left, vt) + matmul(u, right)).value());
  });
}

}  // namespace longhand

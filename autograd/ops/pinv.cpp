// P = A⁺          dA = -Pᵀ dP Pᵀ + (I - A P) dPᵀ P Pᵀ + Pᵀ P dPᵀ (I - P A)
//
// if the rank is constant near A. Golub & Pereyra 1973.
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
  Shape shape = a.shape();
  std::swap(shape[-2], shape[-1]);
  Tensor out = Tensor::empty(shape, a.dtype());
  const Tensor from = a.value().contiguous().reshape({count, m, n});
  const Tensor to = out.reshape({count, n, m});
  parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      copy_into(to.select(0, i), pseudo_inverse(from.select(0, i), tolerance));
  });
  return record("pinv", out, {a},
                [a = a.value(), out](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Variable A(a), P(out), dP(grad_out);
                  const Variable Pt = transpose(P, -2, -1), dPt = transpose(dP, -2, -1);
                  const Variable PdPt = matmul(P, dPt);
                  const Variable left = dPt - matmul(A, PdPt), right = matmul(Pt, PdPt);
                  const Variable dA = matmul(matmul(left, P), Pt) + right -
                                      matmul(matmul(right, P), A) - matmul(matmul(Pt, dP), Pt);
                  grad_in[0].take(dA.value());
                });
}

}  // namespace longhand

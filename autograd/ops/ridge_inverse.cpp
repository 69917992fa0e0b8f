// Z = (AᵀA + εI)⁻¹ Aᵀ = V s/(s² + ε) Uᵀ, for A = U s Vᵀ
// dA = -Zᵀ dZ Zᵀ + (I - A Z) dZᵀ M,  M = (AᵀA + εI)⁻¹ = V 1/(s² + ε) Vᵀ
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/dry_run.h"
#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand {
using namespace ops;
namespace {

// Returns x with column j multiplied by f(s_j).
template <class F>
Tensor scaled_columns(const Tensor& x, const Tensor& s, F f) {
  Tensor out = x.contiguous().clone();
  const int64_t n = s.numel();
  if (is_dry()) return out;
  dispatch_float(x.dtype(), [&]<class T>() {
    T* p = out.data<T>();
    for (int64_t i = 0; i < out.numel(); ++i) p[i] *= static_cast<T>(f(double{s.data<T>()[i % n]}));
  });
  return out;
}

}  // namespace

Variable ridge_inverse(const Variable& a, double eps) {
  check_float("ridge_inverse", a);
  check<ShapeError>(a.rank() >= 2 && a.size(-2) >= a.size(-1) && a.size(-1) >= 1,
                    "ridge_inverse: expected matrices (…, m, n) with m >= n >= 1, got ", a.shape());
  check<ShapeError>(eps > 0, "ridge_inverse: expected eps > 0, got ", eps);
  const int64_t m = a.size(-2), n = a.size(-1), count = a.value().numel() / (m * n);
  Shape shape = a.shape(), square = a.shape();
  std::swap(shape[-2], shape[-1]);
  square[-2] = n;
  Tensor out = Tensor::empty(shape, a.dtype()), M = Tensor::empty(square, a.dtype());
  const Tensor from = a.value().contiguous().reshape({count, m, n});
  const Tensor inverses = out.reshape({count, n, m}), kept = M.reshape({count, n, n});
  parallel_for_each(count, 1, [&](int64_t i) {
    const Svd d = svd(from.select(0, i));
    const Tensor V = d.vt.transpose(0, 1);
    Tensor z = inverses.select(0, i), k = kept.select(0, i);
    matmul_into(z, scaled_columns(V, d.s, [eps](double s) { return s / (s * s + eps); }),
                d.u.transpose(0, 1));
    matmul_into(k, scaled_columns(V, d.s, [eps](double s) { return 1 / (s * s + eps); }), d.vt);
  });
  return record("ridge_inverse", out, {a},
                [a = a.value(), out, M](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Variable A(a), Z(out), dZ(grad_out);
                  const Variable Zt = transpose(Z, -2, -1), dZt = transpose(dZ, -2, -1);
                  const Variable rest = dZt - matmul(A, matmul(Z, dZt));
                  const Variable dA = matmul(rest, Variable(M)) - matmul(matmul(Zt, dZ), Zt);
                  grad_in[0].take(dA.value());
                });
}

}  // namespace longhand

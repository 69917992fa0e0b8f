// Z = A^(-1)          dA = -Zᵀ dZ Zᵀ
//
// Below the diagonal, Z = (I + L)^(-1) has the rows z_i = -Σ_(j<i) L_ij z_j, with 1 on its diagonal.
#include "longhand/attention/ops/inverse.h"

#include <algorithm>

#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"

namespace longhand::attention {
namespace {

// dA of Z = A^(-1), for matrices (…, n, n).
Tensor gradient(const Tensor& Z, const Tensor& dZ) {
  const Tensor Zt = Z.transpose(-2, -1);
  Tensor half = Tensor::empty(Z.shape(), Z.dtype()), dA = Tensor::empty(Z.shape(), Z.dtype());
  matmul_into(half, Zt, dZ);
  matmul_into(dA, half, Zt, -1);
  return dA;
}

}  // namespace

Variable inverse(const Variable& A) {
  ops::check_float("inverse", A);
  check<ShapeError>(A.rank() == 3 && A.size(1) == A.size(2),
                    "inverse: expected square matrices (H, d, d), got ", A.shape());
  Tensor Z = Tensor::empty(A.shape(), A.dtype());
  parallel_for_each(A.size(0), 1, [&](int64_t h) {
    Tensor to = Z.select(0, h);
    copy_into(to, pseudo_inverse(A.value().select(0, h).contiguous()));
  });
  return record("inverse", Z, {A}, [Z](const Tensor& dZ, std::span<GradSlot> slots) {
    slots[0].take(gradient(Z, dZ));
  });
}

Variable lower_inverse(const Variable& L) {
  ops::check_float("lower_inverse", L);
  check<ShapeError>(L.rank() >= 2 && L.size(-2) == L.size(-1),
                    "lower_inverse: expected square matrices (…, n, n), got ", L.shape());
  const int64_t n = L.size(-1);
  const Tensor in = L.value().contiguous();
  Tensor Z = Tensor::zeros(L.shape(), L.dtype());
  dispatch_float(L.dtype(), [&]<class T>() {
    parallel_for_each(n == 0 ? 0 : Z.numel() / (n * n), 1, [&](int64_t m) {
      simd([l = in.data<T>() + m * n * n, z = Z.data<T>() + m * n * n, n] {
        for (int64_t i = 0; i < n; ++i) {
          T* const row = z + i * n;
          for (int64_t j = 0; j < i; ++j)
            for (int64_t d = 0; d <= j; ++d) row[d] -= l[i * n + j] * z[j * n + d];
          row[i] = 1;
        }
      });
    });
  });
  return record("lower_inverse", Z, {L}, [Z, n](const Tensor& dZ, std::span<GradSlot> slots) {
    Tensor dL = gradient(Z, dZ);
    dispatch_float(Z.dtype(), [&]<class T>() {
      parallel_for_each(n == 0 ? 0 : Z.numel() / n, 64, [&](int64_t row) {
        std::fill_n(dL.data<T>() + row * n + row % n, n - row % n, T{0});
      });
    });
    slots[0].take(dL);
  });
}

}  // namespace longhand::attention

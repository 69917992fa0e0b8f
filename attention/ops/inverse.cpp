// Z = A^(-1)          dA = -Zᵀ dZ Zᵀ
#include "longhand/attention/ops/inverse.h"

#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/gemm.h"
#include "longhand/core/linalg.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {

Variable inverse(const Variable& A) {
  ops::check_float("inverse", A);
  check<ShapeError>(A.rank() == 3 && A.size(1) == A.size(2),
                    "inverse: expected square matrices (H, d, d), got ", A.shape());
  Tensor Z = Tensor::empty(A.shape(), A.dtype());
  parallel_for(A.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t h = begin; h < end; ++h) {
      Tensor to = Z.select(0, h);
      copy_into(to, pseudo_inverse(A.value().select(0, h).contiguous()));
    }
  });
  return record("inverse", Z, {A}, [Z](const Tensor& dZ, std::span<GradSlot> slots) {
    const Tensor Zt = Z.transpose(1, 2);
    Tensor half = Tensor::empty(Z.shape(), Z.dtype()), dA = Tensor::empty(Z.shape(), Z.dtype());
    matmul_into(half, Zt, dZ);
    matmul_into(dA, half, Zt, -1);
    slots[0].take(dA);
  });
}

}  // namespace longhand::attention

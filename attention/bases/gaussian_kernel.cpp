#include "longhand/attention/bases/gaussian_kernel.h"

#include "longhand/autograd/ops.h"

namespace longhand::attention {

Variable half_norms(const Variable& x) { return affine(sum(square(x), {-1}, true), 0.5); }

Variable gaussian_exponents(const Variable& x, const Variable& y, double scale) {
  const Variable s =
      matmul(x, transpose(y, -2, -1)) - half_norms(x) - transpose(half_norms(y), -2, -1);
  return affine(relu(-s), -scale);
}

}  // namespace longhand::attention

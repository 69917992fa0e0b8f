// y_j = e^(x_j - m) / sum e^(x_k - m), m = max x          dx_j = y_j (dy_j - sum y_k dy_k)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/function_of_rows.h"

namespace longhand {

Variable softmax(const Variable& x) {
  return ops::function_of_rows(
      "softmax", x, [](auto... row) { kernels::softmax_row(row...); },
      [](auto... row) { kernels::softmax_row_backward(row...); });
}

}  // namespace longhand

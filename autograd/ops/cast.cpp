#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {

Variable cast(const Variable& x, DType dtype) {
  ops::check_float("cast", x);
  if (x.dtype() == dtype) return x;
  return record("cast", x.value().to(dtype), {x},
                [from = x.dtype()](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  grad_in[0].take(grad_out.to(from));
                });
}

}  // namespace longhand

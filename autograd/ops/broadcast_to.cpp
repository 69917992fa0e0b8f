// y = x, repeated along axes of size 1 and new leading axes          dx = sum of dy over these axes
#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {

Variable broadcast_to(const Variable& x, const Shape& shape) {
  check<ShapeError>(x.defined(), "broadcast_to: the input is undefined");
  bool fits = shape.rank() >= x.rank();
  for (int i = 1; fits && i <= x.rank(); ++i) fits = x.size(-i) == shape[-i] || x.size(-i) == 1;
  check<ShapeError>(fits, "broadcast_to: ", x.shape(), " cannot be broadcast to ", shape);
  if (x.shape() == shape) return x;
  return record("broadcast_to", x.value().expand(shape), {x},
                [from = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  ShortVector<int> repeated;
                  for (int i = 1; i <= dy.rank(); ++i)
                    if (i > from.rank() || from[-i] != dy.size(-i)) repeated.push_back(-i);
                  const GradSlot::Accumulator to = dx[0].accumulate();
                  Tensor grad = to.grad;
                  while (grad.rank() < dy.rank()) grad = grad.unsqueeze(0);
                  kernels::sum_axes_into(grad, dy, repeated, 1, to.beta);
                });
}

}  // namespace longhand

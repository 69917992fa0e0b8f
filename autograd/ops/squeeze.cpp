// Removes an axis of size 1, and restores it in the gradient. Both are views.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable squeeze(const Variable& x, int axis) {
  const int at = x.shape().index(axis);
  return record("squeeze", x.value().squeeze(axis), {x},
                [at](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy.unsqueeze(at)); });
}

}  // namespace longhand

// Inserts a new axis of size 1 before `axis`, and removes it from the gradient. Both are views.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable unsqueeze(const Variable& x, int axis) {
  const int at = axis < 0 ? axis + x.rank() + 1 : axis;
  return record("unsqueeze", x.value().unsqueeze(axis), {x},
                [at](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy.squeeze(at)); });
}

}  // namespace longhand

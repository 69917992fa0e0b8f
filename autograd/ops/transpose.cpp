// Swaps two axes, also those of the gradient. Both are views.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable transpose(const Variable& x, int a, int b) {
  return record(
      "transpose", x.value().transpose(a, b), {x},
      [a, b](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy.transpose(a, b)); });
}

}  // namespace longhand

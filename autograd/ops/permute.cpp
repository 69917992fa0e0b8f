// Axis i of y is axis order[i] of x; axis order[i] of dx is axis i of dy. Both are views.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable permute(const Variable& x, ShortVector<int> order) {
  const Tensor out = x.value().permute(order);
  ShortVector<int> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    inverse[x.shape().index(order[i])] = static_cast<int>(i);
  return record("permute", out, {x}, [inverse](const Tensor& dy, std::span<GradSlot> dx) {
    dx[0].take(dy.permute(inverse));
  });
}

}  // namespace longhand

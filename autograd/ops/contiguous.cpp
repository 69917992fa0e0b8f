// x in row-major memory; the gradient is dy.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable contiguous(const Variable& x) {
  check<ShapeError>(x.defined(), "contiguous: the input is undefined");
  if (x.value().is_contiguous()) return x;
  return record("contiguous", x.value().contiguous(), {x},
                [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(dy); });
}

}  // namespace longhand

// y = scale x + shift          dx = scale dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable affine(const Variable& x, double scale, double shift) {
  check_float("affine", x);
  const Tensor out = pointwise(
      [scale, shift](auto v) {
        using T = decltype(v);
        return static_cast<T>(scale) * v + static_cast<T>(shift);
      },
      x.value());
  return record("affine", out, {x}, [scale](const Tensor& dy, std::span<GradSlot> dx) {
    if (scale == 1) return dx[0].take(dy);
    accumulate_pointwise(
        dx[0], [scale](auto d) { return static_cast<decltype(d)>(scale) * d; }, dy);
  });
}

}  // namespace longhand

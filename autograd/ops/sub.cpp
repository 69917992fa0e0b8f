// y = a - b          da = dy, db = -dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable sub(const Variable& a, const Variable& b) {
  check_float_pair("sub", a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape(), "sub");
  const Variable x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  const Tensor out = pointwise([](auto u, auto v) { return u - v; }, x.value(), y.value());
  return record("sub", out, {x, y}, [](const Tensor& dy, std::span<GradSlot> dx) {
    if (dx[0]) dx[0].take(dy);
    if (dx[1])
      accumulate_pointwise(
          dx[1], [](auto d) { return -d; }, dy);
  });
}

}  // namespace longhand

// y = a b          da = b dy, db = a dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable mul(const Variable& a, const Variable& b) {
  check_float_pair("mul", a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape(), "mul");
  const Variable x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  const auto product = [](auto u, auto v) { return u * v; };
  const Tensor out = pointwise(product, x.value(), y.value());
  // Each operand is kept for the gradient of the other.
  const Tensor u = y.requires_grad() ? x.value() : Tensor();
  const Tensor v = x.requires_grad() ? y.value() : Tensor();
  return record("mul", out, {x, y}, [u, v, product](const Tensor& dy, std::span<GradSlot> dx) {
    if (dx[0]) accumulate_pointwise(dx[0], product, dy, v);
    if (dx[1]) accumulate_pointwise(dx[1], product, dy, u);
  });
}

}  // namespace longhand

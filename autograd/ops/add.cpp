// y = a + b          da = dy, db = dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable add(const Variable& a, const Variable& b) {
  check_float_pair("add", a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape(), "add");
  const Variable x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  const Tensor out = pointwise([](auto u, auto v) { return u + v; }, x.value(), y.value());
  return record("add", out, {x, y}, [](const Tensor& dy, std::span<GradSlot> dx) {
    for (GradSlot& slot : dx)
      if (slot) slot.take(dy);
  });
}

}  // namespace longhand

// y = a / b          da = dy / b, db = -dy y / b
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable div(const Variable& a, const Variable& b) {
  check_float_pair("div", a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape(), "div");
  const Variable numerator = broadcast_to(a, shape), denominator = broadcast_to(b, shape);
  const auto quotient = [](auto u, auto v) { return u / v; };
  const Tensor v = denominator.value(), out = pointwise(quotient, numerator.value(), v);
  const Tensor y = denominator.requires_grad() ? out : Tensor();
  return record("div", out, {numerator, denominator},
                [v, y, quotient](const Tensor& dy, std::span<GradSlot> dx) {
                  if (dx[0]) accumulate_pointwise(dx[0], quotient, dy, v);
                  if (dx[1])
                    accumulate_pointwise(
                        dx[1], [](auto d, auto q, auto w) { return -d * q / w; }, dy, y, v);
                });
}

}  // namespace longhand

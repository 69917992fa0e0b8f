// y = [cos x, sin x]          dx = cos(x) dy_sin - sin(x) dy_cos
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable cos_sin(const Variable& x) {
  check_float("cos_sin", x);
  check<ShapeError>(x.rank() >= 1, "cos_sin: expected at least one axis, got a scalar");
  Shape shape = x.shape();
  const int64_t m = shape[-1];
  shape[-1] = 2 * m;
  Tensor out = Tensor::empty_ordered(shape, x.dtype(), x.value().strides());
  Tensor c = out.slice(-1, 0, m), s = out.slice(-1, m, 2 * m);
  dispatch_float(x.dtype(), [&]<class T>() {
    kernels::elementwise<T>(
        c, [](T v) { return math::cos_sin(v).cos; }, kernels::in<T>(x.value()));
    kernels::elementwise<T>(
        s, [](T v) { return math::cos_sin(v).sin; }, kernels::in<T>(x.value()));
  });
  return record("cos_sin", out, {x}, [c, s, m](const Tensor& dy, std::span<GradSlot> in) {
    const Tensor dc = dy.slice(-1, 0, m), ds = dy.slice(-1, m, 2 * m);
    accumulate_pointwise(
        in[0], [](auto a, auto b, auto da, auto db) { return a * db - b * da; }, c, s, dc, ds);
  });
}

}  // namespace longhand

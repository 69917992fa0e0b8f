// y = a b          da = b dy, db = a dy
// A factor per row, w (…, 1), is repeated as a view only: dw is an inner product for each row.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

constexpr auto times = [](auto u, auto v) { return u * v; };

bool scales_rows(const Variable& x, const Variable& w) {
  return x.rank() > 0 && x.size(-1) > 1 && w.rank() > 0 && w.size(-1) == 1;
}

Variable scaled_rows(const Variable& x, const Variable& factors) {
  Shape rows = x.shape();
  rows[-1] = 1;
  const Variable w = broadcast_to(factors, rows);
  const Tensor in = row_dense(x.value()),
               s = with_strides(w.value(), empty_rows_like(in, 1).strides());
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto a = longhand::rows<T>(in);
    for_rows(a.count, a.width, [=, y = out.data<T>(), by = s.data<T>()](int64_t r) {
      kernels::row_accumulate(y + r * a.width, a.width, T{0},
                              [u = a[r], f = by[r]](int64_t j) { return u[j] * f; });
    });
  });
  return record("mul", out, {x, w},
                [s, x = w.requires_grad() ? in : Tensor(), strides = in.strides()](
                    const Tensor& grad_out, std::span<GradSlot> slots) {
                  const Tensor dout = with_strides(grad_out, strides);
                  StridedGradient dx(slots[0], strides), dw(slots[1], s.strides());
                  dispatch_float(dout.dtype(), [&]<class T>() {
                    const auto g = longhand::rows<T>(dout);
                    const GradientTo<T> to_x = dx.in<T>(), to_w = dw.in<T>();
                    const T *const u = to_w ? x.data<T>() : nullptr, *const by = s.data<T>();
                    for_rows(g.count, g.width, [=](int64_t r) {
                      const T* const dy = g[r];
                      if (to_w)
                        kernels::row_accumulate(to_w.to + r, 1, to_w.beta, [=](int64_t) {
                          return kernels::row_dot(u + r * g.width, dy, g.width);
                        });
                      if (to_x)
                        kernels::row_accumulate(to_x.to + r * g.width, g.width, to_x.beta,
                                                [=, f = by[r]](int64_t j) { return dy[j] * f; });
                    });
                  });
                  dx.finish();
                  dw.finish();
                });
}

}  // namespace

Variable mul(const Variable& a, const Variable& b) {
  check_float_pair("mul", a, b);
  const Shape shape = broadcast_shape(a.shape(), b.shape(), "mul");
  if (a.shape() == shape && scales_rows(a, b)) return scaled_rows(a, b);
  if (b.shape() == shape && scales_rows(b, a)) return scaled_rows(b, a);
  const Variable x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  const Tensor out = pointwise(times, x.value(), y.value());
  // Each operand is kept for the gradient of the other.
  const Tensor u = y.requires_grad() ? x.value() : Tensor();
  const Tensor v = x.requires_grad() ? y.value() : Tensor();
  return record("mul", out, {x, y}, [u, v](const Tensor& dy, std::span<GradSlot> dx) {
    if (dx[0]) accumulate_pointwise(dx[0], times, dy, v);
    if (dx[1]) accumulate_pointwise(dx[1], times, dy, u);
  });
}

}  // namespace longhand

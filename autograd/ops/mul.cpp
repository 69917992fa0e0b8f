// y = a b          da = b dy, db = a dy
// A factor of whole rows, w (…, 1), is repeated in a view alone: dw is an inner product for each row.
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
  const Tensor out = pointwise(times, x.value(), w.value().expand(x.shape()));
  const Tensor x_of_rows = w.requires_grad() ? row_dense(x.value()) : Tensor();
  const Tensor w_of_rows = x.requires_grad() ? w.value().expand(x.shape()) : Tensor();
  return record("mul", out, {x, w},
                [w_of_rows, x_of_rows](const Tensor& dy, std::span<GradSlot> dx) {
                  if (dx[0]) accumulate_pointwise(dx[0], times, dy, w_of_rows);
                  if (!dx[1]) return;
                  const Tensor g = with_strides(dy, x_of_rows.strides());
                  accumulate_with_strides(
                      dx[1], empty_rows_like(g, 1).strides(), [&](Tensor& dw, double beta) {
                        dispatch_float(g.dtype(), [&]<class T>() {
                          const auto a = longhand::rows<T>(x_of_rows), b = longhand::rows<T>(g);
                          for_rows(a.count, a.width,
                                   [=, to = dw.data<T>(), add = static_cast<T>(beta)](int64_t r) {
                                     kernels::row_accumulate(to + r, 1, add, [=](int64_t) {
                                       return kernels::row_dot(a[r], b[r], a.width);
                                     });
                                   });
                        });
                      });
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

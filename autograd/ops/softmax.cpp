// y_j = e^(x_j - m) / sum e^(x_k - m), m = max x          dx_j = y_j (dy_j - sum y_k dy_k)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;

Variable softmax(const Variable& x) {
  check_float("softmax", x);
  check<ShapeError>(x.rank() >= 1, "softmax: expected at least one axis, got a scalar");
  const Tensor in = row_dense(x.value());
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto from = rows<T>(in);
    const auto to = rows<T>(out);
    for_rows(to.count, to.width,
             [=](int64_t r) { kernels::softmax_row(from[r], to[r], to.width); });
  });
  return record("softmax", out, {x}, [out](const Tensor& grad_out, std::span<GradSlot> grad_in) {
    const Tensor dout = with_strides(grad_out, out.strides());
    accumulate_with_strides(grad_in[0], out.strides(), [&](Tensor& grad, double beta) {
      dispatch_float(out.dtype(), [&]<class T>() {
        const auto y = rows<T>(out), dy = rows<T>(dout);
        const auto dx = rows<T>(grad);
        for_rows(dx.count, dx.width, [=, b = static_cast<T>(beta)](int64_t r) {
          kernels::softmax_row_backward(y[r], dy[r], dx[r], dx.width, b);
        });
      });
    });
  });
}

}  // namespace longhand

// Functions of rows whose gradient is computed from the result: softmax and its logarithm.
#pragma once

#include <string_view>

#include "longhand/autograd/ops/rows.h"

namespace longhand::ops {

/// y = f(x) for each row; `backward` computes dx = beta dx + the gradient of f, from y and dy.
template <class F, class G>
Variable function_of_rows(std::string_view op, const Variable& x, F f, G backward) {
  check_float(op, x);
  check<ShapeError>(x.rank() >= 1, op, ": expected at least one axis, got a scalar");
  const Tensor in = row_dense(x.value());
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto from = rows<T>(in);
    const auto to = rows<T>(out);
    for_rows(to.count, to.width, [=](int64_t r) { f(from[r], to[r], to.width); });
  });
  return record(op, out, {x}, [out, backward](const Tensor& grad_out, std::span<GradSlot> grad_in) {
    const Tensor dout = with_strides(grad_out, out.strides());
    accumulate_with_strides(grad_in[0], out.strides(), [&](Tensor& grad, double beta) {
      dispatch_float(out.dtype(), [&]<class T>() {
        const auto y = rows<T>(out), dy = rows<T>(dout);
        const auto dx = rows<T>(grad);
        for_rows(dx.count, dx.width, [=, b = static_cast<T>(beta)](int64_t r) {
          backward(y[r], dy[r], dx[r], dx.width, b);
        });
      });
    });
  });
}

}  // namespace longhand::ops

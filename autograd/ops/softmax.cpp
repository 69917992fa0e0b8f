// Softmax along rows, and its logarithm.
#include <cmath>
#include <limits>
#include <string_view>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

template <class T>
void log_softmax_row(const T* x, T* y, int64_t n) {
  const T m = kernels::row_max(x, n);
  if (m == -std::numeric_limits<T>::infinity()) {
    std::fill(y, y + n, m);
    return;
  }
  const T log_sum = std::log(kernels::exp_row(x, y, n, m));
  for (int64_t j = 0; j < n; ++j) y[j] = x[j] - m - log_sum;
}

template <class T>
void log_softmax_row_backward(const T* y, const T* dy, T* dx, int64_t n, T beta) {
  if (kernels::row_max(y, n) == -std::numeric_limits<T>::infinity())
    return kernels::row_accumulate(dx, n, beta, [](int64_t) { return T{0}; });
  const T sum = kernels::row_sum(dy, n);
  kernels::row_accumulate(dx, n, beta, [=](int64_t j) { return dy[j] - math::exp(y[j]) * sum; });
}

// y = f(x) for each row, and dx = beta dx + the gradient of f at dy, of which `backward` knows y.
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

}  // namespace

// y_j = e^(x_j - m) / sum e^(x_k - m), m = max x          dx_j = y_j (dy_j - sum y_k dy_k)
Variable softmax(const Variable& x) {
  return function_of_rows(
      "softmax", x, [](auto... row) { kernels::softmax_row(row...); },
      [](auto... row) { kernels::softmax_row_backward(row...); });
}

// y_j = x_j - m - log sum e^(x_k - m), m = max x          dx_j = dy_j - e^y_j sum dy_k
// A row in which every element is -inf, whose softmax is zeros, gives -inf and a gradient of zero.
Variable log_softmax(const Variable& x) {
  return function_of_rows(
      "log_softmax", x, [](auto... row) { log_softmax_row(row...); },
      [](auto... row) { log_softmax_row_backward(row...); });
}

}  // namespace longhand

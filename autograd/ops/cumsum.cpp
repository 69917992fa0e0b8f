// y_t = x_0 + … + x_t          dx_t = dy_t + … + dy_last, or each from the other end
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/middle.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

constexpr int64_t cumsum_block = 64;  // columns whose cumulative sums stay in registers

// to = beta to + cumulative sums of from along the axis, from the front or from the back, for
// tensors with the same dense strides. Sums are in double: thousands of f32 terms lose no digits.
template <class T>
void running_sums(const Tensor& from, Tensor& to, int axis, bool from_back, double beta) {
  const Middle m(from, axis);
  const T* const x = from.data<T>();
  T* const y = to.data<T>();
  const int64_t columns = std::min(m.inner, cumsum_block);
  const int64_t blocks = columns ? (m.inner + columns - 1) / columns : 0;
  for_rows(m.outer * blocks, m.count * columns, [=, b = static_cast<T>(beta)](int64_t task) {
    const int64_t i = task % blocks * cumsum_block, n = std::min(columns, m.inner - i);
    double sum[cumsum_block] = {};
    for (int64_t step = 0; step < m.count; ++step) {
      const int64_t t = from_back ? m.count - 1 - step : step;
      const int64_t at = (task / blocks * m.count + t) * m.inner + i;
      kernels::row_accumulate(y + at, n, b, [&sum, x = x + at](int64_t j) {
        return static_cast<T>(sum[j] += static_cast<double>(x[j]));
      });
    }
  });
}

}  // namespace

Variable cumsum(const Variable& x, int axis, bool from_back) {
  check_float("cumsum", x);
  const int at = x.shape().index(axis);
  const Tensor in = x.value().is_dense() ? x.value() : x.value().contiguous();
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  if (out.numel() != 0)
    dispatch_float(in.dtype(), [&]<class T>() { running_sums<T>(in, out, at, from_back, 0); });
  return record("cumsum", out, {x},
                [at, from_back, strides = out.strides()](const Tensor& grad_out,
                                                         std::span<GradSlot> grad_in) {
                  const Tensor dout = with_strides(grad_out, strides);
                  accumulate_with_strides(grad_in[0], strides, [&](Tensor& grad, double beta) {
                    if (grad.numel() == 0) return;
                    dispatch_float(grad.dtype(), [&]<class T>() {
                      running_sums<T>(dout, grad, at, !from_back, beta);
                    });
                  });
                });
}

}  // namespace longhand

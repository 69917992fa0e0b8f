// y = z w + b,  z = (x - m) r,  r = (mean (x - m)² + eps)^(-1/2),  m = mean x or 0
// dw = sum of dy z, db = sum of dy over the rows
// dx = r (g - z mean(g z) - mean g),  g = dy w; without mean g if m = 0
#include "longhand/autograd/ops/normalise.h"

namespace longhand::ops {

using normalise::Moments;

Tensor norm_parameter(std::string_view op, const Variable& x, const Variable& parameter,
                      double neutral) {
  const int64_t n = x.size(-1);
  if (!parameter.defined()) return Tensor::full({n}, neutral, x.dtype());
  check<ShapeError>(parameter.shape() == Shape{n} && parameter.dtype() == x.dtype(), op,
                    ": expected a weight or bias ", Shape{n}, " of ", x.dtype(), " for x ",
                    x.shape(), ", got ", parameter.shape(), " of ", parameter.dtype());
  return parameter.value().contiguous();
}

Variable normalise_rows(std::string_view op, const Variable& x, const Variable& weight,
                        const Variable& bias, double eps, bool centred) {
  check_float(op, x);
  check<ShapeError>(x.rank() >= 1, op, ": expected at least one axis, got a scalar");
  const int64_t n = x.size(-1);
  check<ConfigError>(eps >= 0, op, ": expected eps >= 0, got ", eps);

  const Tensor in = row_dense(x.value());
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  const Tensor w = norm_parameter(op, x, weight, 1), b = norm_parameter(op, x, bias, 0);
  const int64_t count = n ? in.numel() / n : 0;
  Tensor moments = Tensor::empty({count, 2}, in.dtype());
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto from = rows<T>(in);
    const auto to = rows<T>(out);
    auto* const s = reinterpret_cast<Moments<T>*>(moments.data<T>());
    const T *const wp = w.data<T>(), *const bp = b.data<T>();
    parallel_for(count, rows_per_task(n), [&](int64_t begin, int64_t end) {
      simd([&, e = static_cast<T>(eps)] {
        normalise::rows(from[begin], end - begin, n, e, centred, wp, bp, s + begin, to[begin]);
      });
    });
  });
  return record(op, out, {x, weight, bias},
                [x = in, w, moments, centred](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const Tensor dout = with_strides(grad_out, x.strides());
                  dispatch_float(x.dtype(), [&]<class T>() {
                    const auto from = rows<T>(x), dy = rows<T>(dout);
                    const auto* const s = reinterpret_cast<const Moments<T>*>(moments.data<T>());
                    const auto run = [&](T* dx, T beta) {
                      normalise::sum_parameter_gradients<T>(
                          from.count, from.width, grad_in[1], grad_in[2], 0,
                          [=, wp = w.data<T>()](int64_t r, int64_t some, T* dw, T* db, T*) {
                            normalise::rows_backward(from[r], dy[r], wp, s + r, some, from.width,
                                                     centred, dx ? dx + r * from.width : nullptr,
                                                     beta, dw, db);
                          });
                    };
                    if (!grad_in[0]) return run(nullptr, T{0});
                    accumulate_with_strides(grad_in[0], x.strides(), [&](Tensor& dx, double beta) {
                      run(dx.data<T>(), static_cast<T>(beta));
                    });
                  });
                });
}

}  // namespace longhand::ops

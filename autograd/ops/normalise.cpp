// y = z w + b,  z = (x - m) r,  r = (mean (x - m)² + eps)^(-1/2),  m = mean x or 0
// dw = sum of dy z, db = sum of dy over the rows
// dx = r (g - z mean(g z) - mean g),  g = dy w; without mean g if m = 0
// With silu, h = x s, s = 1 / (1 + e^-x), replaces x, and dx = dh s (1 + x (1 - s)), which is
// written over x if x has no other owner.
#include "longhand/autograd/ops/normalise.h"

#include <utility>

#include "longhand/autograd/ops/silu.h"

namespace longhand::ops {

using normalise::group;
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

namespace {

// h of `count` elements.
template <class T>
void silu_rows(const T* x, int64_t count, T* h) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) h[i] = silu_of(x[i]);
}

// A template, since the compiler has to know whether h is y to vectorise.
template <bool silu>
Variable norm_of_rows(std::string_view op, const Variable& x, const Variable& weight,
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
        for (int64_t r = begin; r < end; r += group) {
          const int64_t some = std::min(group, end - r);
          if (silu) silu_rows(from[r], some * n, to[r]);
          normalise::rows(silu ? to[r] : from[r], some, n, e, centred, wp, bp, s + r, to[r]);
        }
      });
    });
  });
  return record(
      op, out, {x, weight, bias},
      [x = in, w, moments, centred](const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
        const Tensor dout = with_strides(grad_out, x.strides());
        dispatch_float(x.dtype(), [&]<class T>() {
          const auto from = rows<T>(std::as_const(x)), dy = rows<T>(dout);
          const auto* const s =
              reinterpret_cast<const Moments<T>*>(std::as_const(moments).data<T>());
          const auto run = [&](T* dx, T beta) {
            normalise::sum_parameter_gradients<T>(
                from.count, from.width, grad_in[1], grad_in[2], silu ? group * from.width : 0,
                [=, n = from.width, wp = w.data<T>()](int64_t first, int64_t all, T* dw, T* db,
                                                      T* h) {
                  if (!silu)
                    return normalise::rows_backward(from[first], dy[first], wp, s + first, all, n,
                                                    centred, dx ? dx + first * n : nullptr, beta,
                                                    dw, db);
                  for (int64_t r = first; r < first + all; r += group) {
                    const int64_t some = std::min(group, first + all - r), size = some * n;
                    const T* const v = from[r];
                    silu_rows(v, size, h);
                    normalise::rows_backward(h, dy[r], wp, s + r, some, n, centred,
                                             dx ? h : nullptr, T{0}, dw, db);
                    if (dx)
                      kernels::row_accumulate(dx + r * n, size, beta,
                                              [=](int64_t i) { return silu_slope(v[i]) * h[i]; });
                  }
                });
          };
          const auto write = [&](Tensor& dx, double beta) {
            run(dx.data<T>(), static_cast<T>(beta));
          };
          if (!grad_in[0])
            run(nullptr, T{0});
          else if (silu)
            accumulate_over(grad_in[0], x, write);
          else
            accumulate_with_strides(grad_in[0], x.strides(), write);
        });
      });
}

}  // namespace

Variable normalise_rows(std::string_view op, const Variable& x, const Variable& weight,
                        const Variable& bias, double eps, bool centred, bool silu) {
  return silu ? norm_of_rows<true>(op, x, weight, bias, eps, centred)
              : norm_of_rows<false>(op, x, weight, bias, eps, centred);
}

}  // namespace longhand::ops

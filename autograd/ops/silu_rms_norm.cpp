// y = h r w,  h = x s,  s = 1 / (1 + e^-x),  r = (mean h² + eps)^(-1/2)
// dx = dh s (1 + x (1 - s)),  dh and dw as of a norm (normalise.cpp)
//
// Only x and r are kept; dx is written over x where x has no other owner.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/autograd/ops/silu.h"

namespace longhand {
using namespace ops;
namespace {

using normalise::group;
using normalise::Moments;

// h of `count` elements.
template <class T>
void silu_rows(const T* x, int64_t count, T* h) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) h[i] = silu_of(x[i]);
}

}  // namespace

Variable silu_rms_norm(const Variable& x, const Variable& weight, double eps) {
  check_float("silu_rms_norm", x);
  check<ShapeError>(x.rank() >= 1, "silu_rms_norm: expected at least one axis, got a scalar");
  check<ConfigError>(eps >= 0, "silu_rms_norm: expected eps >= 0, got ", eps);
  const int64_t n = x.size(-1);
  const Tensor in = row_dense(x.value()), w = norm_parameter("silu_rms_norm", x, weight, 1),
               b = norm_parameter("silu_rms_norm", x, {}, 0);
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  const int64_t count = n ? in.numel() / n : 0;
  Tensor moments = Tensor::empty({count, 2}, in.dtype());
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto from = rows<T>(in), to = rows<T>(out);
    auto* const s = reinterpret_cast<Moments<T>*>(moments.data<T>());
    parallel_for(count, rows_per_task(n),
                 [&, e = static_cast<T>(eps), wp = w.data<T>(), bp = b.data<T>()](int64_t begin,
                                                                                  int64_t end) {
                   simd([&] {
                     for (int64_t r = begin; r < end; r += group) {
                       const int64_t some = std::min(group, end - r);
                       silu_rows(from[r], some * n, to[r]);
                       normalise::rows(to[r], some, n, e, false, wp, bp, s + r, to[r]);
                     }
                   });
                 });
  });
  return record(
      "silu_rms_norm", out, {x, weight},
      [x = in, w, moments, n](const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
        const Tensor dout = with_strides(grad_out, x.strides());
        GradSlot no_bias;
        dispatch_float(x.dtype(), [&]<class T>() {
          const auto from = rows<T>(x), dy = rows<T>(dout);
          const auto* const s = reinterpret_cast<const Moments<T>*>(moments.data<T>());
          const auto run = [&](T* dx, T beta) {
            normalise::sum_parameter_gradients<T>(
                from.count, n, grad_in[1], no_bias, group * n,
                [=, wp = w.data<T>()](int64_t first, int64_t rows, T* dw, T* db, T* h) {
                  for (int64_t r = first; r < first + rows; r += group) {
                    const int64_t some = std::min(group, first + rows - r), size = some * n;
                    const T* const v = from[r];
                    silu_rows(v, size, h);
                    normalise::rows_backward(h, dy[r], wp, s + r, some, n, false, dx ? h : nullptr,
                                             T{0}, dw, db);
                    if (dx)
                      kernels::row_accumulate(dx + r * n, size, beta,
                                              [=](int64_t i) { return silu_slope(v[i]) * h[i]; });
                  }
                });
          };
          if (!grad_in[0]) return run(nullptr, T{0});
          accumulate_over(grad_in[0], x, [&](Tensor& dx, double beta) {
            run(dx.data<T>(), static_cast<T>(beta));
          });
        });
      });
}

}  // namespace longhand

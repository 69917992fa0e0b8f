// y = z w + b,  z = (x - m) r,  r = (mean (x - m)² + eps)^(-1/2),  m = mean x or 0
// dw = sum of dy z, db = sum of dy over the rows
// dx = r (g - z mean(g z) - mean g),  g = dy w; without mean g if m = 0
#include "longhand/autograd/ops/normalise.h"

#include "longhand/autograd/ops/rows.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand::ops {
namespace {

using normalise::Moments, normalise::rows_backward;

// Rows per partial sum of the parameters' gradients: few enough to lose no precision in f32.
int64_t rows_of_sum(int64_t width) { return std::min<int64_t>(512, rows_per_task(width)); }

// All gradients in one pass over the rows. dw and db (null if not required) are partial sums, (sums,
// n), over rows_of_sum() rows each.
template <class T>
void backward_rows(Rows<const T> x, Rows<const T> dy, const T* w, const Moments<T>* moments, T* dx,
                   T* dw, T* db, bool centred, T beta) {
  const int64_t n = x.width, block = rows_of_sum(n), grain = rows_per_task(n) / block * block;
  parallel_for(x.count, grain, [&](int64_t begin, int64_t end) {
    simd([&] {
      for (int64_t r = begin; r < end; r += block) {
        T* const dw_sum = dw ? dw + r / block * n : nullptr;
        T* const db_sum = db ? db + r / block * n : nullptr;
        if (dw) {
          std::fill(dw_sum, dw_sum + n, T{0});
          std::fill(db_sum, db_sum + n, T{0});
        }
        rows_backward(x[r], dy[r], w, moments + r, std::min(block, end - r), n, centred,
                      dx ? dx + r * n : nullptr, beta, dw_sum, db_sum);
      }
    });
  });
}

}  // namespace

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
  return record(
      op, out, {x, weight, bias},
      [x = in, w, moments, centred](const Tensor& grad_out, std::span<GradSlot> grad_in) {
        const int64_t width = x.size(-1), block = rows_of_sum(width);
        const Tensor dout = with_strides(grad_out, x.strides());
        dispatch_float(x.dtype(), [&]<class T>() {
          const auto from = rows<T>(x), dy = rows<T>(dout);
          const auto* const s = reinterpret_cast<const Moments<T>*>(moments.data<T>());
          const bool parameters = grad_in[1] || grad_in[2];
          const int64_t sums = (moments.size(0) + block - 1) / block;
          Tensor partial = Tensor::empty({2, parameters ? sums : 0, width}, x.dtype());
          T* const dw = parameters ? partial.data<T>() : nullptr;
          T* const db = parameters ? dw + sums * width : nullptr;
          if (grad_in[0])
            accumulate_with_strides(grad_in[0], x.strides(), [&](Tensor& dx, double beta) {
              backward_rows<T>(from, dy, w.data<T>(), s, dx.data<T>(), dw, db, centred,
                               static_cast<T>(beta));
            });
          else
            backward_rows<T>(from, dy, w.data<T>(), s, nullptr, dw, db, centred, T{0});
          for (int i : {1, 2}) {
            if (!grad_in[i]) continue;
            const GradSlot::Accumulator to = grad_in[i].accumulate();
            kernels::sum_middle<T>(i == 1 ? dw : db, 1, sums, width, to.grad.data<T>(), 1, to.beta);
          }
        });
      });
}

}  // namespace longhand::ops

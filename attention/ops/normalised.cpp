#include "longhand/attention/ops/normalised.h"

#include <algorithm>
#include <cmath>

#include "longhand/attention/ops/tile/operands.h"
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/parallel.h"

namespace longhand::attention {
namespace {

constexpr int64_t grain = 1 << 14;  // elements per task

}  // namespace

// o = n / d', d' from the guard: dn = do / d', dd = -(do·o) / d', or 0 if d' is a constant
Variable normalised(const Variable& sums, const Guard& guard) {
  const Tensor in = row_dense(sums.value());
  const int64_t D = in.size(3) - 1;
  Tensor out = ops::empty_rows_like(in, D), dens = ops::empty_rows_like(in, 1),
         passing = Tensor::empty(dens.shape(), DType::u8);
  dispatch_float(in.dtype(), [&]<class T>() {
    const auto from = rows<T>(in);
    ops::for_rows(
        from.count, D,
        [=, o = out.data<T>(), d = dens.data<T>(), passes = passing.data<uint8_t>()](int64_t r) {
          const T* const n = from[r];
          const auto by = guard.divisor(n[D]);
          d[r] = by.value, passes[r] = by.passes;
          for (int64_t e = 0; e < D; ++e) o[r * D + e] = n[e] / by.value;
        });
  });
  return record("normalised", out, {sums},
                [o = out, dens, passing, strides = in.strides(), D](const Tensor& grad_out,
                                                                    std::span<GradSlot> slots) {
                  const Tensor dout = with_strides(grad_out, o.strides());
                  ops::accumulate_with_strides(slots[0], strides, [&](Tensor& grad, double beta) {
                    dispatch_float(o.dtype(), [&]<class T>() {
                      const auto y = rows<T>(o), dy = rows<T>(dout);
                      ops::for_rows(
                          dens.numel(), D,
                          [=, to = grad.data<T>(), d = dens.data<T>(), add = static_cast<T>(beta),
                           passes = passing.data<uint8_t>()](int64_t r) {
                            const T *const g = dy[r], *const q = y[r];
                            T* const at = to + r * (D + 1);
                            kernels::row_accumulate(
                                at, D, add, [=, by = d[r]](int64_t e) { return g[e] / by; });
                            kernels::row_accumulate(at + D, 1, add, [=, by = d[r]](int64_t) {
                              return passes[r] ? -kernels::row_dot(g, q, D) / by : T{0};
                            });
                          });
                    });
                  });
                });
}

int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths,
                                const Guard& guard) {
  const auto real = tile::lengths_or("nonpositive_normalisers: lengths", lengths,
                                     normalisers.size(0), normalisers.size(1));
  int64_t count = 0;
  for (int64_t b = 0; b < normalisers.size(0); ++b) {
    const Tensor dens = normalisers.select(0, b).slice(0, 0, real[b]).contiguous();
    dispatch_float(dens.dtype(), [&]<class T>() {
      count += parallel_sum<int64_t>(
          dens.numel(), grain,
          [d = dens.data<T>(), least = guard.reliable<T>()](int64_t begin, int64_t end) {
            return std::count_if(d + begin, d + end, [=](T den) { return den < least; });
          });
    });
  }
  return count;
}

Tensor running_max(const Tensor& x) {
  Tensor out = x.contiguous().clone();
  const int64_t N = x.size(1), H = x.size(2);
  dispatch_float(x.dtype(), [&]<class T>() {
    parallel_for_each(x.size(0), 1, [&](int64_t b) {
      T* const p = out.data<T>() + b * N * H;
      for (int64_t i = H; i < N * H; ++i) p[i] = std::max(p[i], p[i - H]);
    });
  });
  return out;
}

Variable log_decay_of_scale(const Variable& x) {
  const int64_t N = x.size(1);
  if (N == 1) return x * 0.0;
  const Variable steps = slice(x, 1, 0, N - 1) - slice(x, 1, 1, N);
  Shape first = x.shape();
  first[1] = 1;
  return concat({Variable(Tensor::zeros(first, x.dtype())), steps}, 1);
}

}  // namespace longhand::attention

// y = z w + b,  z = (x - m) r,  r = (mean (x - m)² + eps)^(-1/2),  m = mean x or 0
// dw = sum of dy z, db = sum of dy over the rows
// dx = r (g - z mean(g z) - mean g),  g = dy w; without mean g where m is 0
#include "longhand/autograd/ops/normalise.h"

#include <cmath>

#include "longhand/autograd/ops/rows.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand {
namespace {

template <class T>
struct Moments {
  T m, r;
};

// Rows that go through each step together: the steps of one row wait for each other's results,
// those of several rows do not.
constexpr int64_t group = 8;

// s_r for `count` <= group rows.
template <class T>
void moments_of(const T* x, int64_t count, int64_t n, T eps, bool centred, Moments<T>* s) {
  const T width = static_cast<T>(n);
  for (int64_t r = 0; r < count; ++r)
    s[r].m = centred ? kernels::row_sum(x + r * n, n) / width : T{0};
  // After the mean, not as mean x² - m²: that would cancel.
  for (int64_t r = 0; r < count; ++r)
    s[r].r = kernels::lane_sum<T>(
        n, [row = x + r * n, m = s[r].m](int64_t j) { return (row[j] - m) * (row[j] - m); });
  for (int64_t r = 0; r < count; ++r) s[r].r = 1 / std::sqrt(s[r].r / width + eps);
}

template <class T>
void normalise_row(const T* x, Moments<T> s, const T* w, const T* b, T* y, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - s.m) * s.r * w[j] + b[j];
}

// dx of `count` <= group rows.
template <class T>
void input_gradient_rows(const T* x, const T* dy, const T* w, const Moments<T>* s, T* dx,
                         int64_t count, int64_t n, bool centred, T beta) {
  const T width = static_cast<T>(n);
  T mean_g[group], mean_gz[group];
  for (int64_t r = 0; r < count; ++r) {
    const T *const from = x + r * n, *const g = dy + r * n;
    const Moments<T> of = s[r];
    mean_g[r] = centred ? kernels::row_dot(g, w, n) / width : T{0};
    mean_gz[r] = kernels::lane_sum<T>(
                     n, [=](int64_t j) { return g[j] * w[j] * ((from[j] - of.m) * of.r); }) /
                 width;
  }
  for (int64_t r = 0; r < count; ++r) {
    const T *const from = x + r * n, *const g = dy + r * n;
    const Moments<T> of = s[r];
    kernels::row_accumulate(dx + r * n, n, beta, [=, a = mean_g[r], b = mean_gz[r]](int64_t j) {
      return of.r * (g[j] * w[j] - (from[j] - of.m) * of.r * b - a);
    });
  }
}

// Four rows at a time, so that the sums are read and written less often.
template <class T>
void add_parameter_gradients(const T* x, const T* dy, const Moments<T>* s, T* dw, T* db,
                             int64_t count, int64_t n) {
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    const T *const a = x + r * n, *const b = a + n, *const c = b + n, *const d = c + n;
    const T *const p = dy + r * n, *const q = p + n, *const u = q + n, *const v = u + n;
    const Moments<T> sa = s[r], sb = s[r + 1], sc = s[r + 2], sd = s[r + 3];
    for (int64_t j = 0; j < n; ++j)
      dw[j] += (p[j] * ((a[j] - sa.m) * sa.r) + q[j] * ((b[j] - sb.m) * sb.r)) +
               (u[j] * ((c[j] - sc.m) * sc.r) + v[j] * ((d[j] - sd.m) * sd.r));
    for (int64_t j = 0; j < n; ++j) db[j] += (p[j] + q[j]) + (u[j] + v[j]);
  }
  for (; r < count; ++r)
    for (int64_t j = 0; j < n; ++j) {
      dw[j] += dy[r * n + j] * ((x[r * n + j] - s[r].m) * s[r].r);
      db[j] += dy[r * n + j];
    }
}

// All gradients in one pass over the rows. dw and db (null if not wanted) are partial sums (tasks,
// n), a row for each block of rows.
template <class T>
void backward_rows(Rows<const T> x, Rows<const T> dy, const T* w, const Moments<T>* moments, T* dx,
                   T* dw, T* db, bool centred, T beta) {
  const int64_t n = x.width, grain = rows_per_task(n);
  parallel_for(x.count, grain, [&](int64_t begin, int64_t end) {
    simd([&] {
      T* const dw_sum = dw ? dw + begin / grain * n : nullptr;
      T* const db_sum = db ? db + begin / grain * n : nullptr;
      if (dw) {
        std::fill(dw_sum, dw_sum + n, T{0});
        std::fill(db_sum, db_sum + n, T{0});
      }
      for (int64_t r = begin; r < end; r += group) {
        const int64_t count = std::min(group, end - r);
        if (dw) add_parameter_gradients(x[r], dy[r], moments + r, dw_sum, db_sum, count, n);
        if (dx)
          input_gradient_rows(x[r], dy[r], w, moments + r, dx + r * n, count, n, centred, beta);
      }
    });
  });
}

// The parameter as a row, or a row of what does nothing.
Tensor row_or(const Variable& parameter, double neutral, int64_t n, DType dtype) {
  return parameter.defined() ? parameter.value().contiguous() : Tensor::full({n}, neutral, dtype);
}

}  // namespace

Variable normalise_rows(std::string_view op, const Variable& x, const Variable& weight,
                        const Variable& bias, double eps, bool centred) {
  check<ShapeError>(x.rank() >= 1, op, ": a scalar has no last axis");
  const int64_t n = x.size(-1);
  for (const Variable& p : {weight, bias})
    check<ShapeError>(!p.defined() || (p.shape() == Shape{n} && p.dtype() == x.dtype()), op,
                      ": weight or bias ", p.shape(), " of ", p.dtype(), " for x ", x.shape(),
                      " of ", x.dtype());
  check<ConfigError>(eps >= 0, op, ": eps ", eps, " is negative");

  const Tensor in = row_dense(x.value());
  Tensor out = Tensor::empty_ordered(in.shape(), in.dtype(), in.strides());
  const Tensor w = row_or(weight, 1, n, in.dtype());
  const int64_t count = n ? in.numel() / n : 0;
  Tensor moments = Tensor::empty({count, 2}, in.dtype());
  dispatch_float(in.dtype(), [&]<class T>() {
    const Tensor b = row_or(bias, 0, n, in.dtype());
    const auto from = rows<T>(in);
    const auto to = rows<T>(out);
    auto* const s = reinterpret_cast<Moments<T>*>(moments.data<T>());
    const T *const wp = w.data<T>(), *const bp = b.data<T>();
    parallel_for(count, rows_per_task(n), [&](int64_t begin, int64_t end) {
      simd([&, e = static_cast<T>(eps)] {
        for (int64_t first = begin; first < end; first += group) {
          const int64_t some = std::min(group, end - first);
          moments_of(from[first], some, n, e, centred, s + first);
          for (int64_t r = first; r < first + some; ++r)
            normalise_row(from[r], s[r], wp, bp, to[r], n);
        }
      });
    });
  });
  return record(op, out, {x, weight, bias},
                [x = in, w, moments, centred](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  const int64_t width = x.size(-1), grain = rows_per_task(width);
                  const Tensor dout = with_strides(grad_out, x.strides());
                  dispatch_float(x.dtype(), [&]<class T>() {
                    const auto from = rows<T>(x), dy = rows<T>(dout);
                    const auto* const s = reinterpret_cast<const Moments<T>*>(moments.data<T>());
                    const bool parameters = grad_in[1] || grad_in[2];
                    const int64_t tasks = (moments.size(0) + grain - 1) / grain;
                    Tensor partial = Tensor::empty({2, parameters ? tasks : 0, width}, x.dtype());
                    T* const dw = parameters ? partial.data<T>() : nullptr;
                    T* const db = parameters ? dw + tasks * width : nullptr;
                    if (grad_in[0])
                      accumulate_with_strides(
                          grad_in[0], x.strides(), [&](Tensor& dx, double beta) {
                            backward_rows<T>(from, dy, w.data<T>(), s, dx.data<T>(), dw, db,
                                             centred, static_cast<T>(beta));
                          });
                    else
                      backward_rows<T>(from, dy, w.data<T>(), s, nullptr, dw, db, centred, T{0});
                    for (int i : {1, 2}) {
                      if (!grad_in[i]) continue;
                      const GradSlot::Accumulator to = grad_in[i].accumulate();
                      kernels::sum_middle<T>(i == 1 ? dw : db, 1, tasks, width, to.grad.data<T>(),
                                             1, to.beta);
                    }
                  });
                });
}

}  // namespace longhand

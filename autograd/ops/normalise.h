// Shared by layer_norm, rms_norm and the linear layers that follow them. Formulas: normalise.cpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "longhand/autograd/ops/rows.h"
#include "longhand/autograd/variable.h"
#include "longhand/core/kernels/reduce.h"
#include "longhand/core/kernels/rows.h"

namespace longhand::ops {

/// (x - m) r w + b along the last axis, r = (mean (x - m)² + eps)^(-1/2), where m is the mean of
/// the row if `centred`, else 0. w and b (n); either may be undefined. With `silu`, of silu(x).
Variable normalise_rows(std::string_view op, const Variable& x, const Variable& weight,
                        const Variable& bias, double eps, bool centred, bool silu = false);

/// Returns the parameter as a row, or a row of neutral elements if it is undefined. Throws
/// ShapeError, naming `op`, if it does not match x.
Tensor norm_parameter(std::string_view op, const Variable& x, const Variable& parameter,
                      double neutral);

namespace normalise {

/// Calls backward(first, count, dw, db, memory), a kernel for simd(), for blocks of rows in
/// parallel. It adds to the sums dw and db of the block, which become the parameters' gradients
/// (null if neither is required). `memory` has the given number of uninitialised elements.
template <class T, class F>
void sum_parameter_gradients(int64_t rows, int64_t width, GradSlot& weight, GradSlot& bias,
                             int64_t elements, F backward) {
  // Few enough rows per partial sum to lose no precision in f32.
  const int64_t block = std::min<int64_t>(512, rows_per_task(width)),
                grain = rows_per_task(width) / block * block, sums = (rows + block - 1) / block;
  const bool wanted = weight || bias;
  Tensor partial = Tensor::empty({2, wanted ? sums : 0, width}, dtype_of<T>);
  T* const partial_sums = partial.data<T>();
  parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    Tensor memory = Tensor::empty({elements}, dtype_of<T>);
    simd([&, spare = memory.data<T>()] {
      for (int64_t r = begin; r < end; r += block) {
        T* const dw = wanted ? partial_sums + r / block * width : nullptr;
        T* const db = wanted ? dw + sums * width : nullptr;
        if (wanted) {
          std::fill_n(dw, width, T{0});
          std::fill_n(db, width, T{0});
        }
        backward(r, std::min(block, end - r), dw, db, spare);
      }
    });
  });
  const auto write = [&](GradSlot& slot, const T* from) {
    if (!slot) return;
    const GradSlot::Accumulator to = slot.accumulate();
    kernels::sum_middle<T>(from, 1, sums, width, to.grad.data<T>(), 1, to.beta);
  };
  write(weight, partial_sums);
  write(bias, partial_sums + sums * width);
}

// Kernels for contiguous rows of n elements, for use inside simd().

template <class T>
struct Moments {
  T m, r;
};

inline constexpr int64_t group = kernels::rows_together;

/// s_r for `count` <= group rows.
template <class T>
void moments_of(const T* x, int64_t count, int64_t n, T eps, bool centred, Moments<T>* s) {
  const T width = static_cast<T>(n);
  T m[group] = {}, sum[group] = {};
  if (centred)
    kernels::lane_sums<T, false>(
        count, n, [=](int64_t r, int64_t j) { return x[r * n + j]; }, m);
  for (int64_t r = 0; r < group; ++r) m[r] /= width;
  // Computed after the mean, not as mean x² - m², which would cancel.
  kernels::lane_sums<T, false>(
      count, n, [&](int64_t r, int64_t j) { return (x[r * n + j] - m[r]) * (x[r * n + j] - m[r]); },
      sum);
  for (int64_t r = 0; r < group; ++r) sum[r] = 1 / std::sqrt(sum[r] / width + eps);
  for (int64_t r = 0; r < count; ++r) s[r] = {m[r], sum[r]};
}

template <class T>
void normalise_row(const T* x, Moments<T> s, const T* w, const T* b, T* y, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] = (x[j] - s.m) * s.r * w[j] + b[j];
}

/// dx = beta dx + g of `count` <= group rows.
template <class T>
void input_gradient_rows(const T* x, const T* dy, const T* w, const Moments<T>* s, T* dx,
                         int64_t count, int64_t n, bool centred, T beta) {
  const T width = static_cast<T>(n);
  T mean_g[group] = {}, mean_gz[group] = {};
  if (centred)
    kernels::lane_sums<T, false>(
        count, n, [=](int64_t r, int64_t j) { return dy[r * n + j] * w[j]; }, mean_g);
  kernels::lane_sums<T, false>(
      count, n,
      [=](int64_t r, int64_t j) {
        return dy[r * n + j] * w[j] * ((x[r * n + j] - s[r].m) * s[r].r);
      },
      mean_gz);
  for (int64_t r = 0; r < group; ++r) mean_g[r] /= width, mean_gz[r] /= width;
  for (int64_t r = 0; r < count; ++r) {
    const T *const from = x + r * n, *const g = dy + r * n;
    const Moments<T> of = s[r];
    kernels::row_accumulate(dx + r * n, n, beta, [=, a = mean_g[r], b = mean_gz[r]](int64_t j) {
      return of.r * (g[j] * w[j] - (from[j] - of.m) * of.r * b - a);
    });
  }
}

// Four rows at a time, to read and write the sums less often.
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

/// y = norm(x) for `count` rows, and their moments s.
template <class T>
void rows(const T* x, int64_t count, int64_t n, T eps, bool centred, const T* w, const T* b,
          Moments<T>* s, T* y) {
  for (int64_t first = 0; first < count; first += group) {
    const int64_t some = std::min(group, count - first);
    moments_of(x + first * n, some, n, eps, centred, s + first);
    for (int64_t r = first; r < first + some; ++r)
      normalise_row(x + r * n, s[r], w, b, y + r * n, n);
  }
}

/// dx = beta dx + g from dy; adds to the gradients dw and db of the parameters. dx, or dw and db,
/// may be null, and dx may be x.
template <class T>
void rows_backward(const T* x, const T* dy, const T* w, const Moments<T>* s, int64_t count,
                   int64_t n, bool centred, T* dx, T beta, T* dw, T* db) {
  for (int64_t r = 0; r < count; r += group) {
    const int64_t some = std::min(group, count - r), at = r * n;
    if (dw) add_parameter_gradients(x + at, dy + at, s + r, dw, db, some, n);
    if (dx) input_gradient_rows(x + at, dy + at, w, s + r, dx + at, some, n, centred, beta);
  }
}

}  // namespace normalise
}  // namespace longhand::ops

// Kernels over one row, for use inside simd(). Sums use 16 accumulators (element i is added to
// number i mod 16), which are added pairwise by halves: the vector width does not affect the bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "longhand/core/math.h"

namespace longhand::kernels {

inline constexpr int lanes = 16;

namespace detail {

template <class T>
T join_lanes(const T (&sum)[lanes]) {
  static_assert(lanes == 16);
  T eight[8], four[4], two[2];
  for (int l = 0; l < 8; ++l) eight[l] = sum[l] + sum[l + 8];
  for (int l = 0; l < 4; ++l) four[l] = eight[l] + eight[l + 4];
  for (int l = 0; l < 2; ++l) two[l] = four[l] + four[l + 2];
  return two[0] + two[1];
}

}  // namespace detail

/// Rows that are reduced together: the steps of the reduction of one row depend on each other, those
/// of several rows do not.
inline constexpr int64_t rows_together = 8;

/// Returns in y_r the lanes x_r of each row joined pairwise by halves, in the order of lane_sum().
template <class T, class Join>
void join_lanes_of_rows(const T (&x)[rows_together * lanes], Join join, T (&y)[rows_together]) {
  T eight[rows_together * 8], four[rows_together * 4], two[rows_together * 2];
  for (int64_t r = 0; r < rows_together; ++r)
    for (int64_t i = 0; i < 8; ++i) eight[r * 8 + i] = join(x[r * 16 + i], x[r * 16 + 8 + i]);
  for (int64_t r = 0; r < rows_together; ++r)
    for (int64_t i = 0; i < 4; ++i) four[r * 4 + i] = join(eight[r * 8 + i], eight[r * 8 + 4 + i]);
  for (int64_t r = 0; r < rows_together; ++r)
    for (int64_t i = 0; i < 2; ++i) two[r * 2 + i] = join(four[r * 4 + i], four[r * 4 + 2 + i]);
  for (int64_t r = 0; r < rows_together; ++r) y[r] = join(two[r * 2], two[r * 2 + 1]);
}

/// Returns the sum of f(i), of type T, over 0 … n-1. Blocks of 1024 are added in double, so that
/// long f32 rows lose no digits.
template <class T, class F>
T lane_sum(int64_t n, F f) {
  constexpr int64_t block = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block), whole = end - (end - begin) % lanes;
    T sum[lanes] = {};
    for (int64_t i = begin; i < whole; i += lanes)
      for (int l = 0; l < lanes; ++l) sum[l] += f(i + l);
    for (int64_t i = whole; i < end; ++i) sum[i - whole] += f(i);
    total += static_cast<double>(detail::join_lanes(sum));
  }
  return static_cast<T>(total);
}

/// y_r = the sum of f(r, i) over i = 0 … n-1 for `count` <= rows_together rows, with the bits of
/// lane_sum().
template <class T, class F>
void lane_sums(int64_t count, int64_t n, F f, T (&y)[rows_together]) {
  if (n > 1024 || n % lanes != 0) {
    for (int64_t r = 0; r < count; ++r) y[r] = lane_sum<T>(n, [&](int64_t i) { return f(r, i); });
    return;
  }
  T sum[rows_together * lanes];
  if (count < rows_together) std::fill(sum + count * lanes, sum + rows_together * lanes, T{0});
  for (int64_t r = 0; r < count; ++r) {
    T row[lanes] = {};
    for (int64_t i = 0; i < n; i += lanes)
      for (int64_t l = 0; l < lanes; ++l) row[l] += f(r, i + l);
    std::copy_n(row, lanes, sum + r * lanes);
  }
  join_lanes_of_rows(
      sum, [](T a, T b) { return a + b; }, y);
}

template <class T>
T row_sum(const T* x, int64_t n) {
  return lane_sum<T>(n, [x](int64_t i) { return x[i]; });
}

template <class T>
T row_dot(const T* a, const T* b, int64_t n) {
  return lane_sum<T>(n, [a, b](int64_t i) { return a[i] * b[i]; });
}

template <class T>
T row_sum_of_squares(const T* x, int64_t n) {
  return row_dot(x, x, n);
}

/// Returns the maximum of a row: -inf if it is empty, NaN if it contains a NaN.
template <class T>
T row_max(const T* x, int64_t n) {
  // The bits of floats compare as integers, except that the order of negative ones is reversed; NaN
  // have the largest magnitudes. Compilers vectorise integer maxima, but not float ones (NaN).
  using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  constexpr Int magnitude = std::numeric_limits<Int>::max();
  constexpr Int infinity = std::bit_cast<Int>(std::numeric_limits<T>::infinity());
  const auto reverse_negative = [](Int bits) -> Int {
    return bits ^ (bits >> std::numeric_limits<Int>::digits & magnitude);
  };
  Int best = reverse_negative(std::bit_cast<Int>(-std::numeric_limits<T>::infinity())), largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const Int bits = std::bit_cast<Int>(x[i]);
    best = std::max(best, reverse_negative(bits));
    largest = std::max<Int>(largest, bits & magnitude);
  }
  if (largest > infinity) return std::numeric_limits<T>::quiet_NaN();
  return std::bit_cast<T>(reverse_negative(best));
}

/// y[i] = beta y[i] + f(i); beta = 0 never reads y. f(i) may read y[i], but no other element of y.
template <class T, class F>
void row_accumulate(T* y, int64_t n, T beta, F f) {
  if (beta == 0)
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = f(i);
  else
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) y[i] = beta * y[i] + f(i);
}

/// y[i] = e^(x[i] - shift). Returns their sum.
template <class T>
T exp_row(const T* x, T* y, int64_t n, T shift) {
  for (int64_t i = 0; i < n; ++i) y[i] = math::exp(x[i] - shift);
  return row_sum(y, n);
}

/// y = e^x / sum e^x; y may be x. A row in which every element is -inf gives zeros.
template <class T>
void softmax_row(const T* x, T* y, int64_t n) {
  const T m = row_max(x, n);
  if (m == -std::numeric_limits<T>::infinity()) {
    std::fill(y, y + n, T{0});
    return;
  }
  const T scale = 1 / exp_row(x, y, n, m);
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

/// dx = beta dx + y (dy - sum y dy) for y = softmax x; dx may be dy.
template <class T>
void softmax_row_backward(const T* y, const T* dy, T* dx, int64_t n, T beta) {
  const T dot = row_dot(y, dy, n);
  row_accumulate(dx, n, beta, [=](int64_t i) { return y[i] * (dy[i] - dot); });
}

}  // namespace longhand::kernels

// Kernels over one row, for use inside simd(). Sums use 16 accumulators (element i is added to
// number i mod 16), which are added pairwise by halves: results do not depend on the vector width.
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
struct EightOf {
  using type [[gnu::vector_size(8 * sizeof(T))]] = T;
};

}  // namespace detail

/// Eight elements that stay in registers between steps, where an array would be in memory.
template <class T>
using Eight = typename detail::EightOf<T>::type;

/// f(i), …, f(i + 7)
template <class T, class F>
[[gnu::always_inline]] inline Eight<T> eight_of(int64_t i, F f) {
  return Eight<T>{f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)};
}

/// The number of rows reduced together: the steps of one reduction depend on each other, but rows
/// are independent.
inline constexpr int64_t rows_together = 8;

namespace detail {

// Joins the elements `first` of [a, b] with those `step` further on.
template <int step, int... first, class V, class Join>
[[gnu::always_inline]] inline V join_elements(V a, V b, Join join) {
  return join(__builtin_shufflevector(a, b, first...),
              __builtin_shufflevector(a, b, (first + step)...));
}

}  // namespace detail

/// Joins the eight elements x_r of each row pairwise by halves, as lane_sum() does, into y_r.
template <class T, class Join>
[[gnu::always_inline]] inline void join_rows(const Eight<T> (&x)[rows_together], Join join,
                                             T (&y)[rows_together]) {
  using detail::join_elements;
  static_assert(rows_together == 8);
  Eight<T> four[4], two[2];
  for (int r = 0; r < 4; ++r)
    four[r] = join_elements<4, 0, 1, 2, 3, 8, 9, 10, 11>(x[2 * r], x[2 * r + 1], join);
  for (int r = 0; r < 2; ++r)
    two[r] = join_elements<2, 0, 1, 8, 9, 4, 5, 12, 13>(four[2 * r], four[2 * r + 1], join);
  const Eight<T> one = join_elements<1, 0, 2, 8, 10, 4, 6, 12, 14>(two[0], two[1], join);
  for (int r = 0; r < 8; ++r) y[r] = one[r / 2 + r % 2 * 4];  // of rows 0, 2, 4, 6, 1, 3, 5, 7
}

/// The lanes of a row joined with `start`: f(i) with i mod 16 < 8 in `low`, the others in `high`.
template <class T>
struct Lanes {
  Eight<T> low, high;
};
template <class T, class F, class Join>
[[gnu::always_inline]] inline Lanes<T> join_lanes(int64_t begin, int64_t end, T start, F f,
                                                  Join join) {
  Lanes<T> x{Eight<T>{} + start, Eight<T>{} + start};
  for (int64_t i = begin; i < end; i += lanes)
    x = {join(x.low, eight_of<T>(i, f)), join(x.high, eight_of<T>(i + 8, f))};
  return x;
}
inline constexpr auto plus = [](auto a, auto b) __attribute__((always_inline)) { return a + b; };

/// Returns the sum of f(i), of type T, over 0 … n-1. Blocks of 1024 are added in double, so that
/// long f32 rows lose no digits.
template <class T, class F>
T lane_sum(int64_t n, F f) {
  constexpr int64_t block = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block), whole = end - (end - begin) % lanes;
    auto [low, high] = join_lanes(begin, whole, T{0}, f, plus);
    for (int64_t i = whole; i < std::min(end, whole + 8); ++i) low[i - whole] += f(i);
    for (int64_t i = whole + 8; i < end; ++i) high[i - whole - 8] += f(i);
    const Eight<T> eight = low + high;
    T four[4], two[2];
    for (int l = 0; l < 4; ++l) four[l] = eight[l] + eight[l + 4];
    for (int l = 0; l < 2; ++l) two[l] = four[l] + four[l + 2];
    total += static_cast<double>(two[0] + two[1]);
  }
  return static_cast<T>(total);
}

/// y_r = the sum of f(r, i) over i = 0 … n-1 for `count` <= rows_together rows, bitwise identical
/// to lane_sum(). If `unrolled`, the sums stay in registers, which is faster for rows of up to
/// about 64 elements but takes longer to compile; by default f64, used for checks, is not unrolled.
template <class T, bool unrolled = sizeof(T) == 4, class F>
void lane_sums(int64_t count, int64_t n, F f, T (&y)[rows_together]) {
  if (n > 1024 || n % lanes != 0 || n == 0) {
    for (int64_t r = 0; r < count; ++r) y[r] = lane_sum<T>(n, [&](int64_t i) { return f(r, i); });
    return;
  }
  Eight<T> sums[rows_together] = {};
  const auto add_row = [&](int64_t r) __attribute__((always_inline)) {
    const auto of_row = [&](int64_t i) { return f(r, i); };
    Eight<T> low = eight_of<T>(0, of_row), high = eight_of<T>(8, of_row);
    for (int64_t i = lanes; i < n; i += lanes)
      low += eight_of<T>(i, of_row), high += eight_of<T>(i + 8, of_row);
    sums[r] = low + high;
  };
  if (unrolled && count == rows_together) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < rows_together; ++r) add_row(r);
  } else {
    for (int64_t r = 0; r < count; ++r) add_row(r);
  }
  join_rows<T>(sums, plus, y);
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

/// sum_j = the sum of row(r)[j] over r = 0 … count-1, four rows at a time, to read and write the
/// sums less often.
template <class T, class Row>
void sum_rows(int64_t count, int64_t columns, Row row, T* sum) {
  std::fill(sum, sum + columns, T{0});
  int64_t r = 0;
  for (; r + 4 <= count; r += 4) {
    const T *const a = row(r), *const b = row(r + 1), *const c = row(r + 2), *const d = row(r + 3);
    for (int64_t j = 0; j < columns; ++j) sum[j] += (a[j] + b[j]) + (c[j] + d[j]);
  }
  for (; r < count; ++r) {
    const T* const a = row(r);
    for (int64_t j = 0; j < columns; ++j) sum[j] += a[j];
  }
}

/// Returns the maximum of a row: -inf if it is empty, NaN if it contains a NaN.
template <class T>
T row_max(const T* x, int64_t n) {
  // Floats compare like their bits as integers, except that the order of negative ones is reversed;
  // NaNs have the largest magnitudes. Compilers vectorise integer maxima, but not float ones (NaN).
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

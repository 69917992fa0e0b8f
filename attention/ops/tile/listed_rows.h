// One query and its listed keys, in rows anywhere in memory: formulas in listed_attention.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "longhand/core/kernels/rows.h"
#include "longhand/core/math.h"
#include "longhand/core/simd.h"

namespace longhand::attention::tile {

/// Keys whose values are summed before being added to the result: errors of long sums stay small.
inline constexpr int64_t summed = 64;

/// The rows of the keys of a head, with stride `step`.
template <class T>
struct KeyRows {
  T* data;
  int64_t step;
  T* at(int64_t j) const { return data + j * step; }
};

/// to[n] = x·row_j for the keys j = keys[n]. For use inside simd().
template <class T>
void dots(const T* x, const KeyRows<const T>& rows, const std::vector<int32_t>& keys, int64_t D,
          T* to) {
  constexpr int64_t together = kernels::rows_together;
  const auto count = static_cast<int64_t>(keys.size());
  const auto some = [&](int64_t first, int64_t number) {
    const T* row[together];
    for (int64_t r = 0; r < number; ++r) row[r] = rows.at(keys[first + r]);
    T y[together];
    kernels::lane_sums<T>(
        number, D, [&row, x](int64_t r, int64_t i) { return x[i] * row[r][i]; }, y);
    std::copy_n(y, number, to + first);
  };
  int64_t first = 0;
  for (; first + together <= count; first += together) some(first, together);
  some(first, count - first);
}

/// Calls f(D), compiled also for constants, so that rows of these widths stay in registers.
template <class F>
void with_width(int64_t D, F f) {
  D == 32 ? f(32) : D == 64 ? f(64) : f(D);
}

/// to += factor x for rows of D elements. For use inside simd().
template <class T>
void add_scaled(T factor, const T* x, int64_t D, T* to) {
  constexpr int64_t lanes = kernels::lanes;
  const int64_t whole = D / lanes * lanes;
  for (int64_t d = 0; d < whole; d += lanes)
#pragma GCC ivdep
#pragma GCC unroll 1
    for (int64_t l = d; l < d + lanes; ++l) to[l] += factor * x[l];
  for (int64_t d = whole; d < D; ++d) to[d] += factor * x[d];
}

/// to += Σ factors[n] row_n over `count` keys, bitwise equal to successive add_scaled(), but
/// several at a time, so that `to` is read and written less often. For use inside simd().
template <class T>
void add_listed_rows(const T* factors, const KeyRows<const T>& rows, const int32_t* keys,
                     int64_t count, int64_t D, T* to) {
  constexpr int64_t lanes = kernels::lanes, together = 4;
  const int64_t whole = D % lanes == 0 ? count / together * together : 0;
  for (int64_t n = 0; n < whole; n += together) {
    const T *const a = rows.at(keys[n]), *const b = rows.at(keys[n + 1]),
                   *const c = rows.at(keys[n + 2]), *const d = rows.at(keys[n + 3]);
    const T f[together] = {factors[n], factors[n + 1], factors[n + 2], factors[n + 3]};
    for (int64_t first = 0; first < D; first += lanes)
#pragma GCC ivdep
#pragma GCC unroll 1
      for (int64_t l = first; l < first + lanes; ++l)
        to[l] = to[l] + f[0] * a[l] + f[1] * b[l] + f[2] * c[l] + f[3] * d[l];
  }
  for (int64_t n = whole; n < count; ++n) add_scaled(factors[n], rows.at(keys[n]), D, to);
}

/// Bias and factors of listed keys; null: none.
template <class T>
struct OfList {
  const T *added, *factors;
};

/// The scores s_j of the keys. For use inside simd().
template <class T>
void listed_scores(const T* q, const KeyRows<const T>& k, const std::vector<int32_t>& keys,
                   int64_t D, T scale, const T* added, T* s) {
  const auto count = static_cast<int64_t>(keys.size());
  dots(q, k, keys, D, s);
  for (int64_t n = 0; n < count; ++n) s[n] *= scale;
  if (added)
    for (int64_t n = 0; n < count; ++n) s[n] += added[n];
}

/// Writes out (D), and m and 1 / Σ to `sums`, for q (D) and at least one key. p and part are
/// scratch memory for one element per key and for D. Must not be called inside simd().
template <class T>
void attend_to_listed(const T* q, const KeyRows<const T>& k, const KeyRows<const T>& v,
                      const std::vector<int32_t>& keys, const OfList<T>& of, int64_t width, T scale,
                      T* p, T* part, T* out, T* sums) {
  simd([&] {
    with_width(width, [&](int64_t D) {
      const auto count = static_cast<int64_t>(keys.size());
      listed_scores(q, k, keys, D, scale, of.added, p);
      const T largest = kernels::row_max(p, count);
      for (int64_t n = 0; n < count; ++n) p[n] = math::exp(p[n] - largest);
      const T total = kernels::row_sum(p, count), factor = 1 / total;
      if (of.factors)
        for (int64_t n = 0; n < count; ++n) p[n] *= of.factors[n];
      std::fill_n(out, D, T{0});
      for (int64_t begin = 0; begin < count; begin += summed) {
        std::fill_n(part, D, T{0});
        add_listed_rows(p + begin, v, keys.data() + begin, std::min(count - begin, summed), D,
                        part);
        add_scaled(factor, part, D, out);
      }
      sums[0] = largest;
      sums[1] = factor;
    });
  });
}
// Compiled in listed_attention.cpp.
extern template void attend_to_listed(const float*, const KeyRows<const float>&,
                                      const KeyRows<const float>&, const std::vector<int32_t>&,
                                      const OfList<float>&, int64_t, float, float*, float*, float*,
                                      float*);
extern template void attend_to_listed(const double*, const KeyRows<const double>&,
                                      const KeyRows<const double>&, const std::vector<int32_t>&,
                                      const OfList<double>&, int64_t, double, double*, double*,
                                      double*, double*);

}  // namespace longhand::attention::tile

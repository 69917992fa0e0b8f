// One pass over the rows of a state for one token, for decoders. For use inside simd().
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "longhand/core/kernels/prefetch.h"

namespace longhand::attention::tile {

/// Rows whose factors are computed together.
inline constexpr int64_t state_rows = 64;

/// to += Σ_l factor_l row_l for n rows (n, width).
template <class T>
void add_rows(const T* rows, int64_t n, int64_t width, const T* factors, T* to) {
  constexpr int64_t together = 4;
  int64_t l = 0;
  for (; l + together <= n; l += together) {
    const T *const a = rows + l * width, *const b = a + width, *const c = b + width,
                   *const d = c + width;
    const T fa = factors[l], fb = factors[l + 1], fc = factors[l + 2], fd = factors[l + 3];
#pragma GCC ivdep
    for (int64_t e = 0; e < width; ++e) to[e] += (fa * a[e] + fb * b[e]) + (fc * c[e] + fd * d[e]);
  }
  for (; l < n; ++l) {
    const T f = factors[l];
#pragma GCC ivdep
    for (int64_t e = 0; e < width; ++e) to[e] += f * rows[l * width + e];
  }
}

/// update_rows() for this many columns, whose sums stay in registers.
template <int64_t columns, bool writes, class V, class W>
void update_columns(double* S, int64_t n, int64_t width, const double* decay, const double* key,
                    const V* v, const double* query, double* to, const double* write, const W* w) {
  double x[columns], y[writes ? columns : 1], sums[columns];
  for (int64_t e = 0; e < columns; ++e) {
    x[e] = static_cast<double>(v[e]), sums[e] = to[e];
    if constexpr (writes) y[e] = static_cast<double>(w[e]);
  }
  for (int64_t l = 0; l < n; ++l) {
    double* const row = S + l * width;
    kernels::prefetch(row + n * width, columns);  // of the next head's state
    const double d = decay[l], k = key[l], q = query[l];
#pragma GCC ivdep
    for (int64_t e = 0; e < columns; ++e) {
      double next = std::fma(d, row[e], k * x[e]);
      if constexpr (writes) next += write[l] * y[e];
      row[e] = next;
      sums[e] = std::fma(q, next, sums[e]);
    }
  }
  for (int64_t e = 0; e < columns; ++e) to[e] = sums[e];
}

/// S_l = decay_l S_l + key_l v, with `writes` also + write_l w, and then to += Σ_l query_l S_l for
/// n rows of S (n, width).
template <bool writes = false, class V, class W = V>
void update_rows(double* S, int64_t n, int64_t width, const double* decay, const double* key,
                 const V* v, const double* query, double* to, const double* write = nullptr,
                 const W* w = nullptr) {
  int64_t e = 0;
  const auto update = [&]<int64_t columns>(std::integral_constant<int64_t, columns>) {
    for (; e + columns <= width; e += columns)
      update_columns<columns, writes>(S + e, n, width, decay, key, v + e, query, to + e, write,
                                      writes ? w + e : nullptr);
  };
  update(std::integral_constant<int64_t, 32>());
  update(std::integral_constant<int64_t, 8>());
  update(std::integral_constant<int64_t, 1>());
}

}  // namespace longhand::attention::tile

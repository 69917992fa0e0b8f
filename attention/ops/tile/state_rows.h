// One pass over the rows of a state for one token, as decoders make it. Inside simd().
#pragma once

#include <cstdint>

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

/// S_l = decay_l S_l + key_l v and then to += Σ_l query_l S_l for n rows of S (n, width).
template <class V>
void update_rows(double* S, int64_t n, int64_t width, const double* decay, const double* key,
                 const double* query, const V* v, double* to) {
  constexpr int64_t together = 2;
  int64_t l = 0;
  for (; l + together <= n; l += together) {
    double *const a = S + l * width, *const b = a + width;
    const double da = decay[l], ka = key[l], qa = query[l], db = decay[l + 1], kb = key[l + 1],
                 qb = query[l + 1];
#pragma GCC ivdep
    for (int64_t e = 0; e < width; ++e) {
      const auto x = static_cast<double>(v[e]);
      const double sa = da * a[e] + ka * x, sb = db * b[e] + kb * x;
      a[e] = sa;
      b[e] = sb;
      to[e] += qa * sa + qb * sb;
    }
  }
  for (; l < n; ++l) {
    double* const row = S + l * width;
    const double d = decay[l], k = key[l], q = query[l];
#pragma GCC ivdep
    for (int64_t e = 0; e < width; ++e) {
      const double next = d * row[e] + k * static_cast<double>(v[e]);
      row[e] = next;
      to[e] += q * next;
    }
  }
}

}  // namespace longhand::attention::tile

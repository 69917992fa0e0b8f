// A block of R rows and V vectors of c stays in registers while k runs: R V + V + 1 of them, and
// for each k V loads of b and R broadcasts of a feed R V multiply-adds. Two of these start in a
// cycle and take four: R V must be at least 8.
#include "longhand/core/kernels/gemm_tile.h"

#include <algorithm>

#include "longhand/core/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace longhand::kernels {
namespace {

template <class T>
struct Product {
  int64_t m, k;
  Strided<T> a;
  const T* b;
  int64_t ldb;
  T* c;
  int64_t ldc;
  bool add;
};

template <class T>
void plain(const Product<T>& p, int64_t n) {
  simd([&] {
    for (int64_t i = 0; i < p.m; ++i) {
      T* const c = p.c + i * p.ldc;
      if (!p.add) std::fill(c, c + n, T{0});
      for (int64_t l = 0; l < p.k; ++l) {
        const T a = p.a.data[i * p.a.row + l * p.a.col];
        const T* const b = p.b + l * p.ldb;
        for (int64_t j = 0; j < n; ++j) c[j] += a * b[j];
      }
    }
  });
}

#if defined(__x86_64__)

// The last vector of a row may be a part of one: `last` elements of it, if `masked`.

alignas(64) constexpr int32_t first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

template <int R, int V, bool masked>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void block_avx2(const Product<float>& p,
                                                                       const float* a, float* c,
                                                                       int last) {
  const auto mask =
      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first_lanes + (masked ? 8 - last : 0)));
  __m256 sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[r][v] = _mm256_setzero_ps();
  for (const float *b = p.b, *const end = b + p.k * p.ldb; b != end; a += p.a.col, b += p.ldb) {
    __m256 x[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
      x[v] =
          masked && v == V - 1 ? _mm256_maskload_ps(b + 8 * v, mask) : _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 y = _mm256_broadcast_ss(a + r * p.a.row);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] = _mm256_fmadd_ps(y, x[v], sum[r][v]);
    }
  }
  if (const float* row = c; p.add)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, row += p.ldc)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const float* const to = row + 8 * v;
        const __m256 old =
            masked && v == V - 1 ? _mm256_maskload_ps(to, mask) : _mm256_loadu_ps(to);
        sum[r][v] = _mm256_add_ps(old, sum[r][v]);
      }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r, c += p.ldc)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* const to = c + 8 * v;
      if (masked && v == V - 1)
        _mm256_maskstore_ps(to, mask, sum[r][v]);
      else
        _mm256_storeu_ps(to, sum[r][v]);
    }
}

// V vectors of all rows of c. The product is a copy, so that it stays in registers: what is written
// to c might change one that others see.
template <int V, bool masked>
[[gnu::target("avx2,fma"), gnu::noinline]] void columns_avx2(Product<float> p, int last) {
  const float* a = p.a.data;
  float* c = p.c;
  int64_t m = p.m;
  for (; m >= 6; m -= 6, a += 6 * p.a.row, c += 6 * p.ldc) block_avx2<6, V, masked>(p, a, c, last);
  for (; m >= 4; m -= 4, a += 4 * p.a.row, c += 4 * p.ldc) block_avx2<4, V, masked>(p, a, c, last);
  for (; m >= 1; m -= 1, a += p.a.row, c += p.ldc) block_avx2<1, V, masked>(p, a, c, last);
}

void multiply_avx2(Product<float> p, int64_t n) {
  for (; n >= 16; n -= 16, p.b += 16, p.c += 16) columns_avx2<2, false>(p, 8);
  const int last = static_cast<int>(n % 8);
  if (n > 8) columns_avx2<2, true>(p, last);
  if (n == 8) columns_avx2<1, false>(p, 8);
  if (n > 0 && n < 8) columns_avx2<1, true>(p, last);
}

template <int R, int V, bool masked>
[[gnu::target("avx512f"), gnu::always_inline]] inline void block_avx512(const Product<float>& p,
                                                                        const float* a, float* c,
                                                                        int last) {
  const auto mask = static_cast<__mmask16>((1u << last) - 1);
  __m512 sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_ps();
  for (const float *b = p.b, *const end = b + p.k * p.ldb; b != end; a += p.a.col, b += p.ldb) {
    __m512 x[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
      x[v] = masked && v == V - 1 ? _mm512_maskz_loadu_ps(mask, b + 16 * v)
                                  : _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const __m512 y = _mm512_set1_ps(a[r * p.a.row]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] = _mm512_fmadd_ps(y, x[v], sum[r][v]);
    }
  }
  if (const float* row = c; p.add)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r, row += p.ldc)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const float* const to = row + 16 * v;
        const __m512 old =
            masked && v == V - 1 ? _mm512_maskz_loadu_ps(mask, to) : _mm512_loadu_ps(to);
        sum[r][v] = _mm512_add_ps(old, sum[r][v]);
      }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r, c += p.ldc)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* const to = c + 16 * v;
      if (masked && v == V - 1)
        _mm512_mask_storeu_ps(to, mask, sum[r][v]);
      else
        _mm512_storeu_ps(to, sum[r][v]);
    }
}

template <int V, bool masked>
[[gnu::target("avx512f"), gnu::noinline]] void columns_avx512(Product<float> p, int last) {
  const float* a = p.a.data;
  float* c = p.c;
  int64_t m = p.m;
  for (; m >= 12; m -= 12, a += 12 * p.a.row, c += 12 * p.ldc)
    block_avx512<12, V, masked>(p, a, c, last);
  for (; m >= 4; m -= 4, a += 4 * p.a.row, c += 4 * p.ldc)
    block_avx512<4, V, masked>(p, a, c, last);
  for (; m >= 1; m -= 1, a += p.a.row, c += p.ldc) block_avx512<1, V, masked>(p, a, c, last);
}

void multiply_avx512(Product<float> p, int64_t n) {
  for (; n >= 32; n -= 32, p.b += 32, p.c += 32) columns_avx512<2, false>(p, 16);
  const int last = static_cast<int>(n % 16);
  if (n > 16) columns_avx512<2, true>(p, last);
  if (n == 16) columns_avx512<1, false>(p, 16);
  if (n > 0 && n < 16) columns_avx512<1, true>(p, last);
}

#endif

}  // namespace

template <>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<double> a, const double* b, int64_t ldb,
               double* c, int64_t ldc, bool add) {
  plain<double>({m, k, a, b, ldb, c, ldc, add}, n);
}

template <>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b, int64_t ldb,
               float* c, int64_t ldc, bool add) {
  const Product<float> p{m, k, a, b, ldb, c, ldc, add};
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx512:
      return multiply_avx512(p, n);
    case Isa::avx2:
      return multiply_avx2(p, n);
#endif
    default:
      return plain(p, n);
  }
}

template <>
bool has_tile_kernels<double>() {
  return false;
}
template <>
bool has_tile_kernels<float>() {
  return isa() != Isa::baseline;
}

namespace {

template <class T>
[[gnu::always_inline]] inline void put(T x, bool add, T* to) {
  *to = add ? *to + x : x;
}

// Rows from `i` on and columns from `l` on, one element after the other.
template <class T>
void transpose_rest(int64_t i, int64_t m, int64_t l, int64_t k, const T* a, int64_t row, T factor,
                    T* to, int64_t ldt, bool add) {
  for (; i < m; ++i)
    for (int64_t j = l; j < k; ++j) put(factor * a[i * row + j], add, &to[j * ldt + i]);
}

#if defined(__x86_64__)

// Squares of 8 x 8: pairs of rows, then quadruples, then halves of vectors change places.
template <bool add>
[[gnu::target("avx2,fma")]] void transpose_avx2(int64_t m, int64_t k, const float* a, int64_t row,
                                                float factor, float* to, int64_t ldt) {
  const __m256 scale = _mm256_set1_ps(factor);
  int64_t i = 0;
  for (; i + 8 <= m; i += 8)
    for (int64_t l = 0; l + 8 <= k; l += 8) {
      __m256 x[8], y[8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) x[r] = _mm256_loadu_ps(a + (i + r) * row + l);
#pragma GCC unroll 4
      for (int r = 0; r < 8; r += 2) {
        y[r] = _mm256_unpacklo_ps(x[r], x[r + 1]);
        y[r + 1] = _mm256_unpackhi_ps(x[r], x[r + 1]);
      }
#pragma GCC unroll 2
      for (int r = 0; r < 8; r += 4) {
        x[r] = _mm256_shuffle_ps(y[r], y[r + 2], 0x44);
        x[r + 1] = _mm256_shuffle_ps(y[r], y[r + 2], 0xee);
        x[r + 2] = _mm256_shuffle_ps(y[r + 1], y[r + 3], 0x44);
        x[r + 3] = _mm256_shuffle_ps(y[r + 1], y[r + 3], 0xee);
      }
#pragma GCC unroll 4
      for (int r = 0; r < 4; ++r) {
        y[r] = _mm256_permute2f128_ps(x[r], x[r + 4], 0x20);
        y[r + 4] = _mm256_permute2f128_ps(x[r], x[r + 4], 0x31);
      }
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) {
        float* const p = to + (l + r) * ldt + i;
        const __m256 z = _mm256_mul_ps(scale, y[r]);
        _mm256_storeu_ps(p, add ? _mm256_add_ps(_mm256_loadu_ps(p), z) : z);
      }
    }
  transpose_rest(0, i, k / 8 * 8, k, a, row, factor, to, ldt, add);
  transpose_rest(i, m, 0, k, a, row, factor, to, ldt, add);
}

#endif

}  // namespace

template <>
void transpose_into(int64_t m, int64_t k, const double* a, int64_t row, double factor, double* to,
                    int64_t ldt, bool add) {
  transpose_rest(0, m, 0, k, a, row, factor, to, ldt, add);
}

template <>
void transpose_into(int64_t m, int64_t k, const float* a, int64_t row, float factor, float* to,
                    int64_t ldt, bool add) {
#if defined(__x86_64__)
  if (isa() != Isa::baseline)
    return add ? transpose_avx2<true>(m, k, a, row, factor, to, ldt)
               : transpose_avx2<false>(m, k, a, row, factor, to, ldt);
#endif
  transpose_rest(0, m, 0, k, a, row, factor, to, ldt, add);
}

template <class T>
void pack_panels(int64_t k, int64_t n, Strided<T> b, T factor, int64_t begin, int64_t end,
                 T* panels) {
  for (int64_t p = begin; p < end; ++p) {
    const int64_t first = p * panel_width, width = std::min(panel_width, n - first);
    const T* const from = b.data + first * b.col;
    T* const to = panels + first * k;
    if (b.col != 1) {
      transpose_into(width, k, from, b.col, factor, to, panel_width, false);
      continue;
    }
    simd([&] {
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < width; ++j) to[l * panel_width + j] = factor * from[l * b.row + j];
    });
  }
}

template <class T>
void gemm_panels(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* panels, T* c, int64_t ldc,
                 bool add) {
  // So many rows of a, and so much of a panel, stay in the first two caches.
  constexpr int64_t rows = 96, depth = 512;
  for (int64_t i = 0; i < m; i += rows)
    for (int64_t l = 0; l == 0 || l < k; l += depth)
      for (int64_t j = 0; j < n; j += panel_width)
        gemm_tile<T>(std::min(rows, m - i), std::min(panel_width, n - j), std::min(depth, k - l),
                     {a.data + i * a.row + l * a.col, a.row, a.col},
                     panels + j * k + l * panel_width, panel_width, c + i * ldc + j, ldc,
                     add || l > 0);
}

template void pack_panels(int64_t, int64_t, Strided<float>, float, int64_t, int64_t, float*);
template void pack_panels(int64_t, int64_t, Strided<double>, double, int64_t, int64_t, double*);
template void gemm_panels(int64_t, int64_t, int64_t, Strided<float>, const float*, float*, int64_t,
                          bool);
template void gemm_panels(int64_t, int64_t, int64_t, Strided<double>, const double*, double*,
                          int64_t, bool);

}  // namespace longhand::kernels

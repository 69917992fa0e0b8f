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
  const float* b = p.b;
  for (int64_t l = 0; l < p.k; ++l, a += p.a.col, b += p.ldb) {
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
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* const to = c + r * p.ldc + 8 * v;
      if (masked && v == V - 1) {
        if (p.add) sum[r][v] = _mm256_add_ps(_mm256_maskload_ps(to, mask), sum[r][v]);
        _mm256_maskstore_ps(to, mask, sum[r][v]);
      } else {
        if (p.add) sum[r][v] = _mm256_add_ps(_mm256_loadu_ps(to), sum[r][v]);
        _mm256_storeu_ps(to, sum[r][v]);
      }
    }
}

// V vectors of all rows of c.
template <int V, bool masked>
[[gnu::target("avx2,fma"), gnu::noinline]] void columns_avx2(const Product<float>& p, int last) {
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
  const float* b = p.b;
  for (int64_t l = 0; l < p.k; ++l, a += p.a.col, b += p.ldb) {
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
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      float* const to = c + r * p.ldc + 16 * v;
      if (masked && v == V - 1) {
        if (p.add) sum[r][v] = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), sum[r][v]);
        _mm512_mask_storeu_ps(to, mask, sum[r][v]);
      } else {
        if (p.add) sum[r][v] = _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]);
        _mm512_storeu_ps(to, sum[r][v]);
      }
    }
}

template <int V, bool masked>
[[gnu::target("avx512f"), gnu::noinline]] void columns_avx512(const Product<float>& p, int last) {
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

}  // namespace longhand::kernels

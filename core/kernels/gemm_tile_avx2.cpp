// Compiled with -mavx2 -mfma.
#include "longhand/core/kernels/gemm_tile-inl.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace longhand::kernels {
namespace {

alignas(64) constexpr int32_t first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

struct Avx2 {
  static constexpr int width = 8, rows = 6;
  using Register = __m256;
  using Mask = __m256i;

  static Mask first(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first_lanes + 8 - n));
  }
  static Register zero() { return _mm256_setzero_ps(); }
  static Register broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Register load(const float* p) { return _mm256_loadu_ps(p); }
  static Register load(const float* p, Mask mask) { return _mm256_maskload_ps(p, mask); }
  static void store(float* p, Register x) { _mm256_storeu_ps(p, x); }
  static void store(float* p, Register x, Mask mask) { _mm256_maskstore_ps(p, mask, x); }
  static Register add(Register x, Register y) { return _mm256_add_ps(x, y); }
  static Register multiply_add(Register x, Register y, Register sum) {
    return _mm256_fmadd_ps(x, y, sum);
  }
};

// Two vectors as one, in blocks with as many rows as those for AVX-512.
template <class V>
struct Pair {
  static constexpr int width = 2 * V::width, rows = 12;
  struct Register {
    typename V::Register low, high;
  };
  struct Mask {
    typename V::Mask low, high;
  };

  static Mask first(int n) {
    return {V::first(n < V::width ? n : V::width), V::first(n > V::width ? n - V::width : 0)};
  }
  static Register zero() { return {V::zero(), V::zero()}; }
  static Register broadcast(const float* p) { return {V::broadcast(p), V::broadcast(p)}; }
  static Register load(const float* p) { return {V::load(p), V::load(p + V::width)}; }
  static Register load(const float* p, Mask mask) {
    return {V::load(p, mask.low), V::load(p + V::width, mask.high)};
  }
  static void store(float* p, Register x) {
    V::store(p, x.low);
    V::store(p + V::width, x.high);
  }
  static void store(float* p, Register x, Mask mask) {
    V::store(p, x.low, mask.low);
    V::store(p + V::width, x.high, mask.high);
  }
  static Register add(Register x, Register y) {
    return {V::add(x.low, y.low), V::add(x.high, y.high)};
  }
  static Register multiply_add(Register x, Register y, Register sum) {
    return {V::multiply_add(x.low, y.low, sum.low), V::multiply_add(x.high, y.high, sum.high)};
  }
};

// Transposes 8 x 8 squares: swaps pairs of rows, then quadruples, then halves of vectors. Two
// squares fill whole cache lines of `to`: lines a row apart may map to a few sets of the L1 cache.
template <bool add>
void transpose(int64_t m, int64_t k, const float* a, int64_t row, float factor, float* to,
               int64_t ldt) {
  const __m256 scale = _mm256_set1_ps(factor);
  for (int64_t first = 0; first < m; first += 16)
    for (int64_t l = 0; l < k; l += 8)
      for (int64_t i = first; i < m && i < first + 16; i += 8) {
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
}

}  // namespace

namespace detail {

void multiply_avx2(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b, int64_t ldb,
                   float* c, int64_t ldc, Addend<float> to) {
  multiply<Avx2>({m, k, a, b, ldb, c, ldc, to}, n);
}
void multiply_avx512_emulated(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b,
                              int64_t ldb, float* c, int64_t ldc, Addend<float> to) {
  multiply<Pair<Avx2>>({m, k, a, b, ldb, c, ldc, to}, n);
}

void transpose_avx2(int64_t m, int64_t k, const float* a, int64_t row, float factor, float* to,
                    int64_t ldt, bool add) {
  if (add)
    transpose<true>(m, k, a, row, factor, to, ldt);
  else
    transpose<false>(m, k, a, row, factor, to, ldt);
}

}  // namespace detail
}  // namespace longhand::kernels

#endif

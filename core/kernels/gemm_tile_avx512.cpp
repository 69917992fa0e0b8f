// Compiled with -mavx512f.
#include "longhand/core/kernels/gemm_tile-inl.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace longhand::kernels {
namespace {

struct Avx512 {
  static constexpr int width = 16, rows = 12;
  using Register = __m512;
  using Mask = __mmask16;

  static Mask first(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  static Register zero() { return _mm512_setzero_ps(); }
  static Register broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Register load(const float* p) { return _mm512_loadu_ps(p); }
  static Register load(const float* p, Mask mask) { return _mm512_maskz_loadu_ps(mask, p); }
  static void store(float* p, Register x) { _mm512_storeu_ps(p, x); }
  static void store(float* p, Register x, Mask mask) { _mm512_mask_storeu_ps(p, mask, x); }
  static Register add(Register x, Register y) { return _mm512_add_ps(x, y); }
  static Register multiply_add(Register x, Register y, Register sum) {
    return _mm512_fmadd_ps(x, y, sum);
  }
};

}  // namespace

void detail::multiply_avx512(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b,
                             int64_t ldb, float* c, int64_t ldc, Addend<float> to) {
  multiply<Avx512>({m, k, a, b, ldb, c, ldc, to}, n);
}

}  // namespace longhand::kernels

#endif

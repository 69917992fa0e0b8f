// The micro-kernels behind gemm_tile<float>, one for each instruction set. For tests; others call
// gemm_tile().
#pragma once

#include <cstdint>
#include <span>

#include "longhand/core/simd.h"

namespace longhand::kernels {

/// c = a b, or with `add` c += a b: the arguments of gemm_tile<float>.
struct TileProduct {
  int64_t m, n, k;
  const float* a;
  int64_t a_row, a_col;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  bool add;
};

struct TileKernel {
  const char* name;
  Isa needs;  // the instruction set it is compiled for
  void (*multiply)(TileProduct);
};

/// Every micro-kernel that this CPU can run, whatever LONGHAND_ISA is: "baseline", "avx2", "avx512"
/// and "avx512 emulated by avx2", which is the code of "avx512" over a 16-wide vector made of two
/// 8-wide ones, so that its form is tested on CPUs without AVX-512. All but "baseline" give the
/// same bits.
std::span<const TileKernel> tile_kernels();

namespace detail {

void multiply_avx2(TileProduct p);
void multiply_avx512_emulated(TileProduct p);
void multiply_avx512(TileProduct p);

/// transpose_into for m and k that are multiples of 8.
void transpose_avx2(int64_t m, int64_t k, const float* a, int64_t row, float factor, float* to,
                    int64_t ldt, bool add);

}  // namespace detail
}  // namespace longhand::kernels

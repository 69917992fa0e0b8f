// The micro-kernels of gemm_tile<float>, one for each instruction set. For tests; other code calls
// gemm_tile().
#pragma once

#include <cstdint>
#include <span>

#include "longhand/core/kernels/gemm_tile.h"
#include "longhand/core/simd.h"

namespace longhand::kernels {

/// Like gemm_tile<float>.
using TileFunction = void(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b,
                          int64_t ldb, float* c, int64_t ldc, Addend<float> to);

struct TileKernel {
  const char* name;
  Isa needs;  // the instruction set it is compiled for
  TileFunction* multiply;
};

/// Every micro-kernel that this CPU supports, regardless of LONGHAND_ISA: "baseline", "avx2",
/// "avx512" and "avx512 emulated by avx2", which runs the code of "avx512" over a 16-wide vector
/// made of two 8-wide ones, to test it on CPUs without AVX-512. All but "baseline" give bitwise
/// identical results.
std::span<const TileKernel> tile_kernels();

namespace detail {

TileFunction multiply_avx2, multiply_avx512_emulated, multiply_avx512;

/// transpose_into for m and k that are multiples of 8.
void transpose_avx2(int64_t m, int64_t k, const float* a, int64_t row, float factor, float* to,
                    int64_t ldt, bool add);

}  // namespace detail
}  // namespace longhand::kernels

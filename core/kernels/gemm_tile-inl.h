// The micro-kernel, one template over a vector type. A source file that includes this is compiled
// for one instruction set (CMakeLists.txt); it defines vector types of that set and instantiates
// multiply<V>. Such a file must not call inline functions of other headers: the linker could keep
// its copy of one, and CPUs without the set would run it.
//
// A vector type V has
//   V::width                   floats in a vector
//   V::rows                    rows of the largest block
//   V::Register, V::Mask       a vector; which lanes of one to load and store
//   V::first(n)                the mask of lanes 0 to n - 1, for n from 0 to width
//   V::zero(), V::broadcast(p), V::load(p), V::load(p, mask), V::store(p, x), V::store(p, x, mask)
//   V::add(x, y), V::multiply_add(x, y, sum): x y + sum, rounded once
//
// A block of R rows and C vectors of c stays in R C + C + 1 registers over the loop along k. For
// each k, C loads of b and R broadcasts of a feed R C multiply-adds. Two of these start per cycle,
// and each takes four cycles: R C must be at least 8.
#pragma once

#include "longhand/core/kernels/gemm_tile_kernels.h"

namespace longhand::kernels {
namespace {

struct Product {
  int64_t m, k;
  Strided<float> a;
  const float* b;
  int64_t ldb;
  float* c;
  int64_t ldc;
  Addend<float> to;
};

// If `masked`, only the first `last` lanes of the last vector of a row are loaded and stored.
template <class V, int R, int C, bool masked>
[[gnu::always_inline]] inline void block(const Product& p, const float* a, float* c,
                                         const float* addend, int last) {
  const auto mask = V::first(last);
  typename V::Register sum[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < C; ++v) sum[r][v] = V::zero();
  for (const float *b = p.b, *const end = b + p.k * p.ldb; b != end; a += p.a.col, b += p.ldb) {
    typename V::Register x[C];
#pragma GCC unroll 2
    for (int v = 0; v < C; ++v)
      x[v] = masked && v == C - 1 ? V::load(b + V::width * v, mask) : V::load(b + V::width * v);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const auto y = V::broadcast(a + r * p.a.row);
#pragma GCC unroll 2
      for (int v = 0; v < C; ++v) sum[r][v] = V::multiply_add(y, x[v], sum[r][v]);
    }
  }
  if (const float* row = addend; row)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r, row += p.to.row)
#pragma GCC unroll 2
      for (int v = 0; v < C; ++v) {
        const float* const from = row + V::width * v;
        sum[r][v] = V::add(masked && v == C - 1 ? V::load(from, mask) : V::load(from), sum[r][v]);
      }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r, c += p.ldc)
#pragma GCC unroll 2
    for (int v = 0; v < C; ++v) {
      float* const to = c + V::width * v;
      if (masked && v == C - 1)
        V::store(to, sum[r][v], mask);
      else
        V::store(to, sum[r][v]);
    }
}

// C vectors of all rows of c. The product is passed by value so that it stays in registers: the
// compiler must assume that stores to c may change what a reference refers to.
template <class V, int C, bool masked>
[[gnu::noinline]] void columns(Product p, int last) {
  constexpr int R = V::rows, two_thirds = R * 2 / 3;
  const float* a = p.a.data;
  float* c = p.c;
  const float* addend = p.to.data;
  int64_t m = p.m;
  const auto next = [&](int64_t rows) {
    a += rows * p.a.row, c += rows * p.ldc;
    if (addend) addend += rows * p.to.row;
  };
  // 16 rows of AVX-512 are 8 + 8, 8 rows of AVX2 are 4 + 4: 12 + 4 and 6 + 2 have too few chains.
  for (; m >= R && m != 2 * two_thirds; m -= R, next(R))
    block<V, R, C, masked>(p, a, c, addend, last);
  for (; m >= two_thirds; m -= two_thirds, next(two_thirds))
    block<V, two_thirds, C, masked>(p, a, c, addend, last);
  for (; m >= 4; m -= 4, next(4)) block<V, 4, C, masked>(p, a, c, addend, last);
  for (; m >= 1; m -= 1, next(1)) block<V, 1, C, masked>(p, a, c, addend, last);
}

template <class V>
[[gnu::always_inline]] inline void multiply(Product p, int64_t n) {
  constexpr int width = V::width;
  for (; n >= 2 * width; n -= 2 * width, p.b += 2 * width, p.c += 2 * width) {
    columns<V, 2, false>(p, width);
    if (p.to.data) p.to.data += 2 * width;
  }
  const int last = static_cast<int>(n % width);
  if (n > width) columns<V, 2, true>(p, last);
  if (n == width) columns<V, 1, false>(p, width);
  if (n > 0 && n < width) columns<V, 1, true>(p, last);
}

}  // namespace
}  // namespace longhand::kernels

#include "longhand/core/kernels/gemm_tile.h"

#include <algorithm>
#include <cstring>

#include "longhand/core/kernels/gemm_tile-inl.h"
#include "longhand/core/measure/multiply_adds.h"
#include "longhand/core/simd.h"

namespace longhand::kernels {
namespace {

// For double.
void plain(int64_t m, int64_t n, int64_t k, Strided<double> a, const double* b, int64_t ldb,
           double* c, int64_t ldc, Addend<double> start) {
  simd([=] {
    for (int64_t i = 0; i < m; ++i) {
      double* const to = c + i * ldc;
      if (!start.data)
        std::fill(to, to + n, 0.0);
      else if (const double* const row = start.data + i * start.row; row != to)
        std::copy_n(row, n, to);
      for (int64_t l = 0; l < k; ++l) {
        const double x = a.data[i * a.row + l * a.col];
        const double* const from = b + l * ldb;
        for (int64_t j = 0; j < n; ++j) to[j] += x * from[j];
      }
    }
  });
}

// Vectors for any CPU, possibly without fused multiply-add: products are rounded before addition.
struct Baseline {
  static constexpr int width = 4, rows = 6;
  using Register [[gnu::vector_size(4 * width)]] = float;
  using Mask = int;

  static Mask first(int n) { return n; }
  static Register zero() { return Register{}; }
  static Register broadcast(const float* p) { return Register{*p, *p, *p, *p}; }
  static Register load(const float* p) {
    Register x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static Register load(const float* p, Mask count) {
    Register x{};
    for (int i = 0; i < count; ++i) x[i] = p[i];
    return x;
  }
  static void store(float* p, Register x) { std::memcpy(p, &x, sizeof x); }
  static void store(float* p, Register x, Mask count) {
    for (int i = 0; i < count; ++i) p[i] = x[i];
  }
  static Register add(Register x, Register y) { return x + y; }
  static Register multiply_add(Register x, Register y, Register sum) { return x * y + sum; }
};

void multiply_baseline(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b,
                       int64_t ldb, float* c, int64_t ldc, Addend<float> to) {
  multiply<Baseline>({m, k, a, b, ldb, c, ldc, to}, n);
}

// Ordered by the required instruction set.
constexpr TileKernel all_tile_kernels[] = {
    {"baseline", Isa::baseline, multiply_baseline},
#if defined(__x86_64__)
    {"avx2", Isa::avx2, detail::multiply_avx2},
    {"avx512 emulated by avx2", Isa::avx2, detail::multiply_avx512_emulated},
    {"avx512", Isa::avx512, detail::multiply_avx512},
#endif
};

}  // namespace

std::span<const TileKernel> tile_kernels() {
  size_t count = 0;
  for (const TileKernel& kernel : all_tile_kernels) count += kernel.needs <= machine_isa();
  return std::span(all_tile_kernels).first(count);
}

template <>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<double> a, const double* b, int64_t ldb,
               double* c, int64_t ldc, Addend<double> to) {
  count_multiply_adds(m, n, k);
  plain(m, n, k, a, b, ldb, c, ldc, to);
}

template <>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<float> a, const float* b, int64_t ldb,
               float* c, int64_t ldc, Addend<float> to) {
  count_multiply_adds(m, n, k);
  switch (isa()) {
#if defined(__x86_64__)
    case Isa::avx512:
      return detail::multiply_avx512(m, n, k, a, b, ldb, c, ldc, to);
    case Isa::avx2:
      return detail::multiply_avx2(m, n, k, a, b, ldb, c, ldc, to);
#endif
    default:
      return multiply_baseline(m, n, k, a, b, ldb, c, ldc, to);
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
  if (isa() != Isa::baseline) {
    const int64_t rows = m / 8 * 8, cols = k / 8 * 8;
    detail::transpose_avx2(rows, cols, a, row, factor, to, ldt, add);
    if (cols < k) transpose_rest(0, rows, cols, k, a, row, factor, to, ldt, add);
    return transpose_rest(rows, m, 0, k, a, row, factor, to, ldt, add);
  }
#endif
  transpose_rest(0, m, 0, k, a, row, factor, to, ldt, add);
}

template <class T>
void pack_panels(int64_t k, int64_t n, Strided<T> b, T factor, int64_t begin, int64_t end,
                 T* panels) {
  if (b.col != 1) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * panel_width;
      transpose_into(std::min(panel_width, n - first), k, b.data + first * b.col, b.col, factor,
                     panels + first * k, panel_width, false);
    }
    return;
  }
  // Several panels at once: stretches of a row that are too short are not prefetched.
  constexpr int64_t together = 4 * panel_width;
  const int64_t last = std::min(n, end * panel_width);
  simd([=] {
    for (int64_t first = begin * panel_width; first < last; first += together)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = first; j < std::min(last, first + together); j += panel_width) {
          const T* const from = b.data + l * b.row + j;
          T* const to = panels + j * k + l * panel_width;
          if (j + panel_width <= last)
            for (int64_t i = 0; i < panel_width; ++i) to[i] = factor * from[i];
          else
            for (int64_t i = 0; i < last - j; ++i) to[i] = factor * from[i];
        }
  });
}

template <class T>
void gemm_panels(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* panels, T* c, int64_t ldc,
                 Addend<T> to) {
  // This many rows of a, and this part of a panel, stay in the L1 and L2 caches.
  constexpr int64_t rows = 96, depth = 512;
  for (int64_t i = 0; i < m; i += rows)
    for (int64_t l = 0; l == 0 || l < k; l += depth)
      for (int64_t j = 0; j < n; j += panel_width) {
        T* const part = c + i * ldc + j;
        const Addend<T> sum = l > 0     ? Addend<T>{part, ldc}
                              : to.data ? Addend<T>{to.data + i * to.row + j, to.row}
                                        : Addend<T>{};
        gemm_tile<T>(std::min(rows, m - i), std::min(panel_width, n - j), std::min(depth, k - l),
                     {a.data + i * a.row + l * a.col, a.row, a.col},
                     panels + j * k + l * panel_width, panel_width, part, ldc, sum);
      }
}

template void pack_panels(int64_t, int64_t, Strided<float>, float, int64_t, int64_t, float*);
template void pack_panels(int64_t, int64_t, Strided<double>, double, int64_t, int64_t, double*);
template void gemm_panels(int64_t, int64_t, int64_t, Strided<float>, const float*, float*, int64_t,
                          Addend<float>);
template void gemm_panels(int64_t, int64_t, int64_t, Strided<double>, const double*, double*,
                          int64_t, Addend<double>);

}  // namespace longhand::kernels

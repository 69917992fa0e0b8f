// Matrix products on one thread, without the overhead of a BLAS call: no lock, and packing only
// where it pays.
#pragma once

#include <cstdint>

namespace longhand::kernels {

/// A matrix with any strides, such as a transposed one: element (i, k) is data[i row + k col].
template <class T>
struct Strided {
  const T* data;
  int64_t row, col;
};

/// The matrix that a product is added to: rows `row` elements apart, or one row for all if `row` is
/// 0. If null, nothing is added.
template <class T>
struct Addend {
  const T* data = nullptr;
  int64_t row = 0;
};

/// c = to + a b; a (m, k), b (k, n), c (m, n), the rows of b and c contiguous and ldb, ldc >= n
/// elements apart: ldb is also the stride along k, so it is never 0. `to` may be c itself, which is
/// not read otherwise. The elements of a row of c are computed by the same operations in the same
/// order whatever m, n and their neighbours are: a product may be split along m and n with bitwise
/// identical results.
///
/// T is float or double. For float, each element of a b is one chain of multiply-adds along k,
/// which is then added to `to`: a sum of many products is a blocked sum. AVX2 and AVX-512 fuse
/// multiply-adds and are bitwise identical; the baseline set rounds twice. Double is a plain loop
/// whose chains begin with `to`. Not for use inside simd(): it selects the instruction set itself.
template <class T>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, int64_t ldb, T* c,
               int64_t ldc, Addend<T> to);
/// c = a b, or with `add` c += a b.
template <class T>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, int64_t ldb, T* c,
               int64_t ldc, bool add) {
  gemm_tile<T>(m, n, k, a, b, ldb, c, ldc, add ? Addend<T>{c, ldc} : Addend<T>{});
}

/// Whether this machine has vector kernels for T, which are then faster than OpenBLAS: at all sizes
/// from 64 x 64 to 1024 x 256, they reach 95 to 98 GFLOP/s on a Zen 3 core with AVX2, whose peak is
/// 100, and OpenBLAS 61 to 89.
template <class T>
bool has_tile_kernels();

/// to[l ldt + i] = factor a(i, l) for a (m, k) with contiguous rows, `row` elements apart; with
/// `add`, it is added to `to`. Not for use inside simd().
template <class T>
void transpose_into(int64_t m, int64_t k, const T* a, int64_t row, T factor, T* to, int64_t ldt,
                    bool add);

/// A right factor (k, n) is best packed into panels of columns, (k, panel_width) each, one after
/// the other: the rows read for one block of the product are then adjacent, whatever n is.
inline constexpr int64_t panel_width = 32;
inline int64_t panels_of(int64_t n) { return (n + panel_width - 1) / panel_width; }
inline int64_t panels_size(int64_t k, int64_t n) { return panels_of(n) * panel_width * k; }
/// Writes panels [begin, end) of `factor` times b, one of whose strides is 1.
template <class T>
void pack_panels(int64_t k, int64_t n, Strided<T> b, T factor, int64_t begin, int64_t end,
                 T* panels);
/// gemm_tile() for a packed b and any sizes.
template <class T>
void gemm_panels(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* panels, T* c, int64_t ldc,
                 Addend<T> to);
template <class T>
void gemm_panels(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* panels, T* c, int64_t ldc,
                 bool add) {
  gemm_panels<T>(m, n, k, a, panels, c, ldc, add ? Addend<T>{c, ldc} : Addend<T>{});
}

}  // namespace longhand::kernels

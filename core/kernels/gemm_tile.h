// Products of matrices that fit in the caches, on one thread, without the costs that a call of BLAS
// has: no packing, no lock.
#pragma once

#include <cstdint>

namespace longhand::kernels {

/// A matrix with any two strides, such as a transposed one: element (i, k) is data[i row + k col].
template <class T>
struct Strided {
  const T* data;
  int64_t row, col;
};

/// c = a b, or with `add` c += a b; a (m, k), b (k, n), c (m, n), the rows of b and c contiguous
/// and ldb and ldc elements apart. Without `add` c is not read. The n elements of a row of c come
/// from the same operations in the same order whatever m, n and their neighbours are: a product may
/// be cut along m and n without changing a bit.
///
/// T is float or double. AVX2 and AVX-512 give the same bits: each element of a b is one chain of
/// fused multiply-adds along k. The baseline set, which has none, and double multiply and add; that
/// of double is a plain loop. Not for use inside simd(): it chooses the instruction set itself.
template <class T>
void gemm_tile(int64_t m, int64_t n, int64_t k, Strided<T> a, const T* b, int64_t ldb, T* c,
               int64_t ldc, bool add);

}  // namespace longhand::kernels

// QR and SVD of small matrices, by LAPACK.
#pragma once

#include "longhand/core/tensor.h"

namespace longhand {

struct Qr {
  Tensor q;  // (m, k), orthonormal columns, k = min(m, n)
  Tensor r;  // (k, n), upper triangular
};
/// a = q r for a (m, n) of floats. The diagonal of r is not negative: that makes the factorisation
/// unique, and q of a Gaussian matrix Haar-distributed (Mezzadri 2007). LAPACK alone gives neither.
Qr qr(const Tensor& a);

struct Svd {
  Tensor u;   // (m, k)
  Tensor s;   // (k), falling
  Tensor vt;  // (k, n)
};
/// a = u diag(s) vt for a (m, n) of floats. Throws Error if it does not converge.
Svd svd(const Tensor& a);

/// The Moore-Penrose inverse of a (m, n). Singular values that are not above tolerance * the
/// largest count as 0; a tolerance below max(m, n) times the precision of the dtype is raised to
/// that.
Tensor pseudo_inverse(const Tensor& a, double tolerance = 1e-12);

}  // namespace longhand

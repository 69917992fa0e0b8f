// QR, singular value and eigenvalue decompositions of small matrices, by LAPACK.
#pragma once

#include "longhand/core/tensor.h"

namespace longhand {

struct Qr {
  Tensor q;  // (m, k), orthonormal columns, k = min(m, n)
  Tensor r;  // (k, n), upper triangular
};
/// Returns a = q r for a (m, n) of floats. The diagonal of r is not negative: this makes the
/// factorisation unique, and q of a Gaussian matrix Haar-distributed (Mezzadri 2007); LAPACK alone
/// guarantees neither. Throws ShapeError unless a is a non-empty matrix of floats.
Qr qr(const Tensor& a);

struct Svd {
  Tensor u;   // (m, k)
  Tensor s;   // (k), in descending order
  Tensor vt;  // (k, n)
};
/// Returns a = u diag(s) vt for a (m, n) of floats. Throws Error if LAPACK does not converge.
Svd svd(const Tensor& a);

/// Returns the eigenvalues (n) of a symmetric matrix a (n, n), in ascending order, from its lower
/// triangle. Throws ShapeError for another shape and Error if LAPACK does not converge.
Tensor symmetric_eigenvalues(const Tensor& a);

/// Returns svd() with the reciprocals of the singular values. Values of at most tolerance times the
/// largest one count as 0: their reciprocals and vectors are 0. A tolerance below max(m, n) times
/// the machine epsilon of the dtype is raised to that.
Svd inverted_svd(const Tensor& a, double tolerance);

/// Returns the Moore-Penrose inverse (n, m) of a (m, n), given its inverted_svd().
Tensor pseudo_inverse(const Svd& inverted);
inline Tensor pseudo_inverse(const Tensor& a, double tolerance = 1e-12) {
  return pseudo_inverse(inverted_svd(a, tolerance));
}

}  // namespace longhand

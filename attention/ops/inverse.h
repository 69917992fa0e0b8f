// Inverses of matrices.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// A^(-1) for positive definite A (H, d, d), by its singular values. Directions lost to rounding are left
/// out, in the gradient too, which that of pinv() amplifies.
///
/// Throws ShapeError unless A holds square matrices of floats.
Variable inverse(const Variable& A);

/// (I + L)^(-1) for L (…, n, n), of which only what is below the diagonal is read, by forward substitution.
///
/// Throws ShapeError unless L holds square matrices of floats.
Variable lower_inverse(const Variable& L);

}  // namespace longhand::attention

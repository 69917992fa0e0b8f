// Inverses of matrices.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// A^(-1) for positive definite A (H, d, d), from its singular values. Directions lost to rounding
/// are left out, also of the gradient; the gradient of pinv() would amplify them.
///
/// Throws ShapeError unless A holds square matrices of floats.
Variable inverse(const Variable& A);

/// (I + L)^(-1) by forward substitution for L (…, n, n), reading only what is below its diagonal.
///
/// Throws ShapeError unless L holds square matrices of floats.
Variable lower_inverse(const Variable& L);

}  // namespace longhand::attention

// Inverses of matrices.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// A^(-1) for positive definite A (H, d, d), by its singular values. Directions lost to rounding are left
/// out, in the gradient too, which that of pinv() amplifies.
///
/// Throws ShapeError unless A holds square matrices of floats.
Variable inverse(const Variable& A);

}  // namespace longhand::attention

// Half the squared norm of rows, the exponent of Gaussian kernels and of features of the softmax kernel.
#pragma once

#include "longhand/autograd/ops.h"

namespace longhand::attention {

/// |scale x|² / 2 along the last axis of x, which is kept with size 1.
inline Variable half_square(const Variable& x, double scale) {
  return affine(sum(square(x), {-1}, true), scale * scale / 2);
}

}  // namespace longhand::attention

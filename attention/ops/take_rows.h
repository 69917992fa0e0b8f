// Rows of each head of a tensor by index.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// The rows j = index[b, h, i] of x (B, N, H, D) as (B, n, H, D), for an index (B, H, n) i32 of
/// values below N; 0 where it is negative. Differentiable with respect to x: gradients of a row
/// taken several times are added in f64, in the order of i.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable take_rows(const Variable& x, const Tensor& index);

}  // namespace longhand::attention

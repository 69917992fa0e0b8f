// Sums over axes, in parallel and in a fixed order.
#pragma once

#include "longhand/core/memory/recycled.h"
#include "longhand/core/tensor.h"

namespace longhand::kernels {

/// out[o, i] = beta out[o, i] + (sum over c of x[o, c, i]) / divisor, for row-major x (outer,
/// count, inner); beta = 0 never reads out. Each sum is a tree of partial sums that depends on the
/// sizes alone. T is float or double.
template <class T>
void sum_middle(const T* x, int64_t outer, int64_t count, int64_t inner, T* out, double divisor = 1,
                double beta = 0);

/// out = beta out + (sum of x over the axes) / divisor. out must have the shape of x with size 1
/// along the axes and the same float dtype, and be dense. Throws ShapeError if it is not.
void sum_axes_into(Tensor& out, const Tensor& x, const ShortVector<int>& axes, double divisor = 1,
                   double beta = 0);

}  // namespace longhand::kernels

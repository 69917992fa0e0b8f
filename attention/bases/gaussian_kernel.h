// The Gaussian kernel between rows, e^(-scale |x - y|²/2).
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// |x|²/2 along the last axis, which is kept with size 1.
Variable half_norms(const Variable& x);

/// Logarithms of the kernel, -scale |x_i - y_j|²/2 (…, N, M), for x (…, N, D) and y (…, M, D).
/// Rounding never makes them positive.
Variable gaussian_exponents(const Variable& x, const Variable& y, double scale);

}  // namespace longhand::attention

// Logarithms of cumulative sums of exponentials over tokens.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// log sum_(j<=i) e^x_j along axis 1 of x (B, N, H, D), summed in double precision.
///
///   dx_j = e^(x_j - y_j) D_j,  D_j = dy_j + e^(y_j - y_(j+1)) D_(j+1)
Variable log_cumulative_sum_exp(const Variable& x);

}  // namespace longhand::attention

// Features that are products of two elements of a row.
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// The upper triangle of x xᵀ for the rows of x (…, D), its diagonal divided by sqrt(2), so that
/// φ(x)·φ(y) = (x·y)²/2: (…, D (D + 1) / 2). If `lower_degrees`, after 1 and x: φ(x)·φ(y) = 1 + s +
/// s²/2, s = x·y: (…, 1 + D + D (D + 1) / 2). Arora et al. 2024 (arXiv 2402.18668).
Variable quadratic_products(const Variable& x, bool lower_degrees);

/// r_i r_(i+j) for all i and j = 1, …, nu, where r = [max(x, 0), max(-x, 0)] and its indices wrap
/// around, for the rows of x (…, D): (…, 2 D nu), nu < 2 D. Schlag et al. 2021 (arXiv 2102.11174),
/// eq. 37-38.
Variable shifted_products(const Variable& x, int64_t nu);

}  // namespace longhand::attention

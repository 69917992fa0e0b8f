// Features that are products of two entries of a row.
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// The upper triangle of x xᵀ for the rows of x (…, D), with its diagonal divided by sqrt(2), so that
/// φ(x)·φ(y) = (x·y)²/2: (…, D (D + 1) / 2). After 1 and x if `lower_degrees`, so that φ(x)·φ(y) = 1 + s +
/// s²/2 with s = x·y: (…, 1 + D + D (D + 1) / 2). Arora et al. 2024 (arXiv 2402.18668).
Variable quadratic_products(const Variable& x, bool lower_degrees);

/// r_i r_(i+j) for all i and j = 1, …, nu, r = [max(x, 0), max(-x, 0)], whose indices continue at the
/// start, for the rows of x (…, D): (…, 2 D nu), nu < 2 D. Schlag et al. 2021 (arXiv 2102.11174), eq.
/// 37-38.
Variable shifted_products(const Variable& x, int64_t nu);

}  // namespace longhand::attention

// Shared by the analyses: norms and products of matrices in f64, and gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longhand/autograd/variable.h"

namespace longhand::attention::analysis {

/// a·b
double dot(std::span<const double> a, std::span<const double> b);
/// Sum of squares of all elements.
double square_norm(const Tensor& a);
/// |a - b| / |b| over all elements (Frobenius norms); |a| if b is 0.
double relative_error(const Tensor& a, const Tensor& b);
/// The matrix product a b.
Tensor product(const Tensor& a, const Tensor& b);
/// The given rows of x (n, D).
Tensor rows_of(const Tensor& x, const std::vector<int64_t>& which);
/// The gradient of x; zeros if it has none.
Tensor gradient_or_zeros(const Variable& x);

}  // namespace longhand::attention::analysis

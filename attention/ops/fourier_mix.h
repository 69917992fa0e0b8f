// Mixing by a Fourier transform over tokens and channels. Lee-Thorp et al. 2021 (arXiv 2105.03824),
// eq. 1 and 3.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// For the values x (n, C) of the n = lengths[b] real tokens (undefined: n = N) of each sequence of
/// v (B, N, H, D), with C = H D channels, computes (0 at padding)
///
///   y = scale Re(F_n x F_C),   y_kl = scale Σ_jm x_jm cos(2π (k j / n + l m / C))
///
/// with scale = (n C)^(-1/2) if `ortho`, otherwise 1. The matrix of this map is symmetric, so the
/// gradient of v is the same transform of dy, and nothing is saved for it. Takes O(n C log(n C)).
///
/// Throws ShapeError if the shape, the dtype or the lengths do not match.
Variable fourier_mix(const Variable& v, const Tensor& lengths, bool ortho);

}  // namespace longhand::attention

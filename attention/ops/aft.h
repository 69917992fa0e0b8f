// Averages over keys with weights that do not depend on the query, of the attention-free
// transformer. Zhai et al. 2021 (arXiv 2105.14103), eq. 2 without its gate:
//
//   y_ic = Σ_j e^(k_jc + w_ij) v_jc / Σ_j e^(k_jc + w_ij)
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Computes y (B, N, H, D) for k and v (B, N, H, D) with any strides, over the first lengths[b]
/// keys (undefined: all), j <= i if causal; 0 at padding. w_ij = 0 unless |i - j| < window; then it
/// is element (i, j) of `biases` (N, N) or, for a band, element (i, window - 1 + j - i) of
/// (N, 2 window - 1). Without biases, window is 0. Keys and biases may have any finite magnitude.
/// Takes N window exponentials and memory for N D elements.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable aft(const Variable& k, const Variable& v, const Variable& biases, int64_t window,
             bool band, bool causal, const Tensor& lengths);

}  // namespace longhand::attention

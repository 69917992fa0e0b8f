// The closest matrices of low rank. Eckart & Young 1936.
#pragma once

#include <cstdint>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// How many singular values σ are kept: `rank`, or if energy > 0 the smallest number whose e_i add
/// up to this fraction of the sum of all, e = σ² or σ.
struct LowRankOptions {
  int64_t rank = 0;
  double energy = 0;
  bool squares = true;    // e = σ²
  bool projector = true;  // gradients treat the singular vectors as constants
};

struct LowRank {
  Variable out;
  double rank = 0,
         energy = 0;  // means over matrices: σ kept, and their fraction of the sum of e
};

/// P_r = Σ_(i <= r) σ_i u_i v_iᵀ = U_r U_rᵀ P for matrices P = U Σ Vᵀ in (B, H, N, M), in f64 and
/// time N³. With lengths (B) only the first lengths[b] rows and columns are used; others are 0.
///
/// Throws ShapeError unless P is a float tensor of rank 4.
LowRank low_rank(const Variable& P, const Tensor& lengths, const LowRankOptions& options);

}  // namespace longhand::attention

// Normalisation of sums of weighted values, and what causal features are scaled by.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// What keeps a normaliser away from 0 where features have signs. eps is in the scale that the
/// features were stabilised by; where a guard acts, gradients take that scale as a constant.
struct Guard {
  enum class Kind {
    none,
    add,   // den + 2 eps where |den| <= eps
    clamp  // max(den, eps)
  };
  Kind kind = Kind::none;
  double eps = 0;
};

/// The sums over their normalisers: (B, N, H, D) of (B, N, H, D + 1), whose last column is the
/// normaliser. One of exactly 0, with nothing to attend to or no feature in common, gives 0 and
/// gradient 0.
Variable normalised(const Variable& sums, const Guard& guard = {});

/// How many of the normalisers (B, N, H) are at most 0, of the first lengths[b] tokens of each
/// sequence (undefined: of all).
int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths);

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a scale of keys that depends on the past
/// alone.
Tensor running_max(const Tensor& x);

/// x_(i-1) - x_i along axis 1 of x (B, N, ...), 0 for the first token: the log decay of sums that
/// are kept relative to e^x_i.
Variable log_decay_of_scale(const Variable& x);

/// log sum_(j<=i) e^x_j along axis 1 of x (B, N, H, D), summed in double precision.
///
///   dx_j = e^(x_j - y_j) D_j,  D_j = dy_j + e^(y_j - y_(j+1)) D_(j+1)
Variable log_cumulative_sum_exp(const Variable& x);

}  // namespace longhand::attention

// Normalisation of weighted sums of values, and scales of causal features.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// How the normaliser of signed features is kept away from 0. eps is relative to the scale by which
/// the features were stabilised; if a guard takes effect, gradients treat that scale as a constant.
struct Guard {
  enum class Kind {
    none,
    add,   // den + 2 eps where |den| <= eps
    clamp  // max(den, eps)
  };
  Kind kind = Kind::none;
  double eps = 0;
};

/// The sums (B, N, H, D + 1) divided by their last column, the normaliser: (B, N, H, D). If the
/// normaliser is exactly 0 (no key to attend to, or no common feature), the result and its
/// gradients are 0.
Variable normalised(const Variable& sums, const Guard& guard = {});

/// The number of normalisers (B, N, H) that are at most 0, among the first lengths[b] tokens of
/// each sequence (undefined: among all).
int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths);

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a scale of keys that depends only on the
/// past.
Tensor running_max(const Tensor& x);

/// x_(i-1) - x_i along axis 1 of x (B, N, ...), 0 for the first token: the log decay of sums
/// that are relative to e^x_i.
Variable log_decay_of_scale(const Variable& x);

/// log sum_(j<=i) e^x_j along axis 1 of x (B, N, H, D), summed in double precision.
///
///   dx_j = e^(x_j - y_j) D_j,  D_j = dy_j + e^(y_j - y_(j+1)) D_(j+1)
Variable log_cumulative_sum_exp(const Variable& x);

}  // namespace longhand::attention

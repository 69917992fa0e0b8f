// Normalisation of weighted sums of values, and scales of causal features.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Normalisers closer to 0 count as 0: 1.3e-29 in f32, 2.4e-299 in f64. Terms below the smallest
/// normal number are lost; down to here this changes a sum of n terms by at most n 2^-30 of it, and
/// products with the inverse do not overflow.
template <class T>
inline constexpr T smallest_normaliser = std::numeric_limits<T>::min() * T{1 << 30};

/// How normalisers are kept away from 0. eps is relative to the scale that stabilises the features;
/// where a guard takes effect, gradients treat that scale as a constant.
struct Guard {
  enum class Kind {
    none,
    add,   // den + 2 eps where |den| <= eps
    clamp  // max(den, eps)
  };
  Kind kind = Kind::none;
  double eps = 0;
  /// The contribution to the normaliser of one key in the direction of the query, if features are
  /// signed and have a scale, like sines and cosines; otherwise 0. Sums of such features are exact
  /// to about eps() times `unit`, with eps() of the dtype.
  double unit = 0;

  /// Normalisers closer to 0 than this count as 0: none of their digits is correct.
  template <class T>
  T floor() const {
    return std::max(smallest_normaliser<T>,
                    static_cast<T>(unit) * std::numeric_limits<T>::epsilon());
  }
  /// Gradients of smaller normalisers may have no correct digit: errors grow as (unit / den)².
  template <class T>
  T reliable() const {
    return std::max(floor<T>(),
                    static_cast<T>(unit) * std::sqrt(std::numeric_limits<T>::epsilon()));
  }
  /// The divisor of sums in place of a normaliser, infinity where it counts as 0, and whether
  /// gradients pass through it.
  template <class T>
  struct Divisor {
    T value;
    bool passes;
  };
  template <class T>
  Divisor<T> divisor(T den) const {
    const T least = static_cast<T>(eps);
    if (kind == Kind::add && std::abs(den) <= least) return {den + 2 * least, true};
    if (kind == Kind::clamp && den < least) return {least, false};
    if (std::abs(den) < floor<T>()) return {std::numeric_limits<T>::infinity(), false};
    return {den, true};
  }
};

/// Divides the sums (B, N, H, D + 1) by their last column, the normaliser: (B, N, H, D). If a
/// normaliser is closer to 0 than Guard::floor() (no key to attend to, no common feature, or
/// underflow), the result and its gradients are 0.
Variable normalised(const Variable& sums, const Guard& guard = {});

/// The number of normalisers (B, N, H) below Guard::reliable(), which includes zeros and negative
/// ones, among the first lengths[b] tokens of each sequence (undefined: all tokens).
int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths,
                                const Guard& guard = {});

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a scale of keys that depends only on past
/// keys.
Tensor running_max(const Tensor& x);

/// x_(i-1) - x_i along axis 1 of x (B, N, ...), 0 for the first token: the log decay of sums that
/// are relative to e^x_i.
Variable log_decay_of_scale(const Variable& x);

}  // namespace longhand::attention

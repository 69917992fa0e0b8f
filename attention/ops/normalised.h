// Normalisation of weighted sums of values, and scales of causal features.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// A normaliser nearer to 0 counts as 0: 1.3e-29 in f32, 2.4e-299 in f64. Terms below the smallest normal
/// number are lost, which changes a sum of n terms by at most n 2^-30 of it down to here, and products
/// with the inverse do not overflow.
template <class T>
inline constexpr T smallest_normaliser = std::numeric_limits<T>::min() * T{1 << 30};

/// How normalisers are kept away from 0. eps is relative to the scale by which the features were
/// stabilised; if a guard takes effect, gradients treat that scale as a constant.
struct Guard {
  enum class Kind {
    none,
    add,   // den + 2 eps where |den| <= eps
    clamp  // max(den, eps)
  };
  Kind kind = Kind::none;
  double eps = 0;
  /// What one key in the direction of the query adds to the normaliser, if features are signed and have a
  /// scale, as sines and cosines have; otherwise 0. Sums of such features are exact to about eps() times
  /// this, where eps() is that of the dtype.
  double unit = 0;

  /// Normalisers nearer to 0 count as 0: nothing in them is exact.
  template <class T>
  T floor() const {
    return std::max(smallest_normaliser<T>,
                    static_cast<T>(unit) * std::numeric_limits<T>::epsilon());
  }
  /// Gradients of smaller normalisers need not have a correct digit: their errors are as (unit / den)².
  template <class T>
  T reliable() const {
    return std::max(floor<T>(),
                    static_cast<T>(unit) * std::sqrt(std::numeric_limits<T>::epsilon()));
  }
  /// What sums are divided by in place of a normaliser, infinity where it counts as 0; and whether
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

/// The sums (B, N, H, D + 1) divided by their last column, the normaliser: (B, N, H, D). If the
/// normaliser is nearer to 0 than Guard::floor() (no key to attend to, no common feature, or one that
/// underflows), the result and its gradients are 0.
Variable normalised(const Variable& sums, const Guard& guard = {});

/// The number of normalisers (B, N, H) below Guard::reliable(), such as those of 0 and negative ones, among
/// the first lengths[b] tokens of each sequence (undefined: among all).
int64_t nonpositive_normalisers(const Tensor& normalisers, const Tensor& lengths,
                                const Guard& guard = {});

/// max over j <= i of x_j, along axis 1 of x (B, N, H): a scale of keys that depends only on the
/// past.
Tensor running_max(const Tensor& x);

/// x_(i-1) - x_i along axis 1 of x (B, N, ...), 0 for the first token: the log decay of sums
/// that are relative to e^x_i.
Variable log_decay_of_scale(const Variable& x);

}  // namespace longhand::attention

// An exponential moving average whose weights sum to 1 even in floating point.
#pragma once

#include <cmath>
#include <limits>

#include "longhand/train/step/gradients.h"

namespace longhand::train {

/// a <- beta a + (1 - beta) x for values of type T.
///
/// Computed as a + (1 - beta)(x - a), or for beta < 1/2 as x + beta (a - x): one rounded
/// coefficient instead of two makes the weights of a and x sum to exactly 1. Rounding beta and 1 -
/// beta to T separately would miss 1 by up to 2^-24 in f32, which at beta = 0.99999 changes the
/// average by 1e-3 of its value.
template <class T>
class MovingAverage {
 public:
  /// The smallest 1 - beta for which T can represent the average. The average follows changes down
  /// to u / (1 - beta) of its value, below which a step changes no bit (u: unit roundoff of T); the
  /// limit is 1/16 of the value.
  static constexpr double smallest_share =
      8 * static_cast<double>(std::numeric_limits<T>::epsilon());

  /// Requires 0 <= beta <= 1 - smallest_share.
  explicit MovingAverage(double beta)
      : slow_(beta >= 0.5), coefficient_(static_cast<T>(slow_ ? 1 - beta : beta)) {}

  /// Returns the average updated with x.
  T operator()(T average, T x) const {
    return slow_ ? average + coefficient_ * (x - average) : x + coefficient_ * (average - x);
  }

  /// Returns 1 - beta^t, the total weight of the first t values if the average started at 0, for
  /// beta as operator() applies it, rounded to T.
  double total_weight(double t) const {
    const double c = static_cast<double>(coefficient_);
    return slow_ ? -std::expm1(t * std::log1p(-c)) : 1 - std::pow(c, t);
  }

 private:
  bool slow_;
  T coefficient_;  // 1 - beta if slow, else beta
};

/// Throws ConfigError if beta is so close to 1 that the dtype of a parameter cannot represent the
/// average. `owner` and `name` name the option in the message.
inline void check_average(const Parameters& parameters, const char* owner, const char* name,
                          double beta) {
  for (const auto& [parameter_name, parameter] : parameters)
    dispatch_float(parameter.dtype(), [&, &of = parameter_name]<class T>() {
      constexpr double least = MovingAverage<T>::smallest_share;
      check<ConfigError>(1 - beta >= least, owner, ": ", name, " is 1 - ", 1 - beta,
                         ", too close to 1 for ", of, " of ", dtype_of<T>, ": expected 1 - ", name,
                         " >= ", least, "; use a smaller ", name);
    });
}

}  // namespace longhand::train

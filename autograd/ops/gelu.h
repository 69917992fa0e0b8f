// The GELU of one number, for the operations that apply it.
#pragma once

#include <numbers>

#include "longhand/core/math.h"

namespace longhand {

/// Phi(x) = (1 + erf(x / sqrt 2)) / 2
template <class T>
T normal_cdf(T x) {
  return (1 + math::erf(x * static_cast<T>(1 / std::numbers::sqrt2))) / 2;
}

/// phi(x) = e^(-x²/2) / sqrt(2 pi)
template <class T>
T normal_density(T x) {
  constexpr double inverse_sqrt_two_pi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return math::exp(-x * x / 2) * static_cast<T>(inverse_sqrt_two_pi);
}

}  // namespace longhand

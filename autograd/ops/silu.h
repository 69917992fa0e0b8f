// SiLU and its slope, for kernels.
#pragma once

#include "longhand/core/math.h"

namespace longhand::ops {

/// x s with s = 1 / (1 + e^-x). e^-x may overflow to infinity, whose reciprocal is 0, as required.
template <class T>
T silu_of(T x) {
  return x / (1 + math::exp(-x));
}

/// The derivative s (1 + x (1 - s)).
template <class T>
T silu_slope(T x) {
  const T s = 1 / (1 + math::exp(-x));
  return s * (1 + x * (1 - s));
}

}  // namespace longhand::ops

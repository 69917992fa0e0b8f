// The GELU of a scalar, for the operations that apply it.
#pragma once

#include "longhand/core/math.h"

namespace longhand::ops {

/// x Phi(x)
template <class T>
T gelu_of(T x) {
  return x * math::normal(x).cdf;
}

/// x Phi(x) and its derivative Phi(x) + x phi(x), at the cost of only one of them.
template <class T>
struct GeluWithSlope {
  T value, slope;
};
template <class T>
GeluWithSlope<T> gelu_with_slope(T x) {
  const math::Normal<T> at = math::normal(x);
  return {x * at.cdf, at.cdf + x * at.density};
}

}  // namespace longhand::ops

// y = x Phi(x),  Phi(x) = (1 + erf(x / sqrt 2)) / 2
// dx = (Phi(x) + x phi(x)) dy,  phi(x) = e^(-x²/2) / sqrt(2 pi)
#include <numbers>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
namespace {

template <class T>
T normal_cdf(T x) {
  return (1 + math::erf(x * static_cast<T>(1 / std::numbers::sqrt2))) / 2;
}

template <class T>
T normal_density(T x) {
  constexpr double inverse_sqrt_two_pi = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return math::exp(-x * x / 2) * static_cast<T>(inverse_sqrt_two_pi);
}

}  // namespace

Variable gelu(const Variable& x) {
  return pointwise_of_input(
      "gelu", x, [](auto v) { return v * normal_cdf(v); },
      [](auto dy, auto v) { return (normal_cdf(v) + v * normal_density(v)) * dy; });
}

}  // namespace longhand

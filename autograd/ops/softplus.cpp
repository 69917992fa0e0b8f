// y = b log(1 + e^(a x))          dx = a b dy / (1 + e^(-a x))
// Computed as max(a x, 0) + log(1 + u) with u = e^-|a x|, which neither overflows nor loses e^x
// next to 1 for large negative a x. The C library's log1p would not be vectorised.
#include <cmath>
#include <type_traits>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;
namespace {

// 1/(2n + 1) + x/(2n + 3) + …, up to the term for `last`.
template <int n, int last, class T>
T odd_reciprocals(T x) {
  constexpr T term = T{1} / T{2 * n + 1};
  if constexpr (n == last)
    return term;
  else
    return term + x * odd_reciprocals<n + 1, last>(x);
}

// log(1 + u) for 0 <= u <= 1, as 2 artanh z with z = u / (2 + u) <= 1/3: the omitted terms are
// below a tenth of the rounding error.
template <class T>
T log_of_one_plus(T u) {
  constexpr int last = std::is_same_v<T, float> ? 7 : 16;
  const T z = u / (2 + u);
  return 2 * z * odd_reciprocals<0, last>(z * z);
}

}  // namespace

Variable softplus(const Variable& x, double inner, double outer) {
  return pointwise_of_input(
      "softplus", x,
      [inner, outer](auto v) {
        using T = decltype(v);
        const T t = static_cast<T>(inner) * v;
        return static_cast<T>(outer) * ((t > 0 ? t : 0) + log_of_one_plus(math::exp(-std::abs(t))));
      },
      [inner, slope = inner * outer](auto dy, auto v) {
        using T = decltype(v);
        return static_cast<T>(slope) * dy / (1 + math::exp(static_cast<T>(-inner) * v));
      });
}

}  // namespace longhand

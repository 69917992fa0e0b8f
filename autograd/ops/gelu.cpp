// y = x Phi(x)          dx = (Phi(x) + x phi(x)) dy
#include "longhand/autograd/ops/gelu.h"

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {

Variable gelu(const Variable& x) {
  return pointwise_of_input(
      "gelu", x, [](auto v) { return v * normal_cdf(v); },
      [](auto dy, auto v) { return (normal_cdf(v) + v * normal_density(v)) * dy; });
}

}  // namespace longhand

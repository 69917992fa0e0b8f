// y = x Phi(x)          dx = (Phi(x) + x phi(x)) dy
#include "longhand/autograd/ops/gelu.h"

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable gelu(const Variable& x) {
  return pointwise_of_input(
      "gelu", x, [](auto v) { return ops::gelu_of(v); },
      [](auto dy, auto v) { return ops::gelu_with_slope(v).slope * dy; });
}

}  // namespace longhand

// y = x s,  s = 1 / (1 + e^-x)          dx = s (1 + x (1 - s)) dy
#include "longhand/autograd/ops/silu.h"

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable silu(const Variable& x) {
  return pointwise_of_input(
      "silu", x, [](auto v) { return silu_of(v); },
      [](auto dy, auto v) { return silu_slope(v) * dy; });
}

}  // namespace longhand

// s = 1 / (1 + e^-x)
// y = x s          dx = s (1 + x (1 - s)) dy
// e^-x may overflow to infinity, whose reciprocal is 0, as required.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable silu(const Variable& x) {
  return pointwise_of_input(
      "silu", x, [](auto v) { return v / (1 + math::exp(-v)); },
      [](auto dy, auto v) {
        const auto s = 1 / (1 + math::exp(-v));
        return s * (1 + v * (1 - s)) * dy;
      });
}

}  // namespace longhand

// y = 1 / (1 + e^-x)          dx = y (1 - y) dy
// e^-x may overflow to infinity, whose reciprocal is 0, as required.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable sigmoid(const Variable& x) {
  return pointwise_of_result(
      "sigmoid", x, [](auto v) { return 1 / (1 + math::exp(-v)); },
      [](auto dy, auto y) { return y * (1 - y) * dy; });
}

}  // namespace longhand

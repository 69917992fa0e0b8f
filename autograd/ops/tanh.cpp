// y = tanh x          dx = (1 - y²) dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable tanh(const Variable& x) {
  return pointwise_of_result(
      "tanh", x, [](auto v) { return math::tanh(v); },
      [](auto dy, auto y) { return (1 - y * y) * dy; });
}

}  // namespace longhand

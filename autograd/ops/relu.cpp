// y = max(x, 0)          dx = dy where y > 0, else 0
// The comparisons let NaN pass through in both directions.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable relu(const Variable& x) {
  return pointwise_of_result(
      "relu", x, [](auto v) { return v < 0 ? 0 : v; },
      [](auto dy, auto y) { return y <= 0 ? 0 : dy; });
}

}  // namespace longhand

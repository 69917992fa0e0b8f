// y = e^x          dx = y dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable exp(const Variable& x) {
  return pointwise_of_result(
      "exp", x, [](auto v) { return math::exp(v); }, [](auto dy, auto y) { return dy * y; });
}

}  // namespace longhand

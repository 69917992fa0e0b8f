// y = x + 1 for x > 0, e^x for x <= 0          dx = dy for x > 0, y dy for x <= 0
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable elu_plus_one(const Variable& x) {
  return pointwise_of_result(
      "elu_plus_one", x,
      [](auto v) {
        const auto e = math::exp(v);
        return v > 0 ? v + 1 : e;
      },
      [](auto dy, auto y) { return y > 1 ? dy : y * dy; });
}

}  // namespace longhand

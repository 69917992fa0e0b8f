// y = x for x > 0, alpha (e^x - 1) for x <= 0          dx = dy for x > 0, (y + alpha) dy for x <= 0
// e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2): no digits are lost near 0.
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable elu(const Variable& x, double alpha) {
  // With alpha < 0, the sign of x could not be determined from the result.
  check<ConfigError>(alpha >= 0, "elu: expected alpha >= 0, got ", alpha);
  return pointwise_of_result(
      "elu", x,
      [alpha](auto v) {
        const auto t = math::tanh(v / 2);
        return v > 0 ? v : static_cast<decltype(v)>(alpha) * (2 * t / (1 - t));
      },
      [alpha](auto dy, auto y) { return y > 0 ? dy : (y + static_cast<decltype(y)>(alpha)) * dy; });
}

}  // namespace longhand

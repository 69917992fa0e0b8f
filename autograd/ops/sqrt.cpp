// y = x^(1/2)          dx = dy / (2 y)
#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable sqrt(const Variable& x) {
  return pointwise_of_result(
      "sqrt", x, [](auto v) { return std::sqrt(v); }, [](auto dy, auto y) { return dy / (2 * y); });
}

}  // namespace longhand

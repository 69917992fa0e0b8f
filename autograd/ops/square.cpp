// y = x²          dx = 2 x dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable square(const Variable& x) {
  return pointwise_of_input(
      "square", x, [](auto v) { return v * v; }, [](auto dy, auto v) { return 2 * v * dy; });
}

}  // namespace longhand

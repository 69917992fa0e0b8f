// y = log x          dx = dy / x
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable log(const Variable& x) {
  return pointwise_of_input(
      "log", x, [](auto v) { return math::log(v); }, [](auto dy, auto v) { return dy / v; });
}

}  // namespace longhand

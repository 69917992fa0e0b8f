// y = log(x + a)          dx = dy / (x + a)
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/math.h"

namespace longhand {
using namespace ops;

Variable log(const Variable& x, double shift) {
  return pointwise_of_input(
      "log", x, [shift](auto v) { return math::log(v + static_cast<decltype(v)>(shift)); },
      [shift](auto dy, auto v) { return dy / (v + static_cast<decltype(v)>(shift)); });
}

}  // namespace longhand

// y = log x          dx = dy / x
#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable log(const Variable& x) {
  return pointwise_of_input(
      "log", x, [](auto v) { return std::log(v); }, [](auto dy, auto v) { return dy / v; });
}

}  // namespace longhand

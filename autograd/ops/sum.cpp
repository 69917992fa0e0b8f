// y = sum of x over the axes          dx = dy, repeated along them
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/reduce.h"

namespace longhand {
using namespace ops;

Variable sum(const Variable& x, ShortVector<int> axes, bool keep_axes) {
  const Reduction over("sum", x, axes);
  return record("sum", over.reduce(x.value(), 1, keep_axes), {x},
                [over](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  grad_in[0].take(over.repeat(grad_out));
                });
}

}  // namespace longhand

// y = x[…, begin : end : step, …]          dx = dy there, 0 elsewhere
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;

Variable slice(const Variable& x, int axis, int64_t begin, int64_t end, int64_t step) {
  const Tensor out = x.value().slice(axis, begin, end, step);
  const int64_t n = x.size(axis);
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  return record("slice", out, {x},
                [axis, n, begin, end, step](const Tensor& dy, std::span<GradSlot> dx) {
                  const GradSlot::Accumulator to = dx[0].accumulate();
                  if (to.beta == 0) {
                    to.grad.slice(axis, 0, begin).fill(0);
                    to.grad.slice(axis, end, n).fill(0);
                    for (int64_t k = 1; k < std::min(step, end - begin); ++k)
                      to.grad.slice(axis, begin + k, end, step).fill(0);
                  }
                  Tensor part = to.grad.slice(axis, begin, end, step);
                  accumulate_into(part, to.beta, dy);
                });
}

}  // namespace longhand

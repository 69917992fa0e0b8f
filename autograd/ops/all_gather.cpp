// y = [x_0, …, x_(P-1)] on every rank          dx_r = sum over the ranks p of their dy[r]
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"

namespace longhand {

Variable all_gather(const Variable& x, Communicator& ranks) {
  return record("all_gather", ranks.all_gather(x.value().contiguous()), {x},
                [&ranks](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].take(ranks.sum_scatter(dy.contiguous()));
                });
}

}  // namespace longhand

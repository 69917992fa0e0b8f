// y[p] = x_p[r] on rank r          dx[p] = dy_p[r]: the same exchange
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"

namespace longhand {

Variable all_to_all(const Variable& x, Communicator& ranks) {
  check<ShapeError>(x.rank() >= 1 && x.size(0) == ranks.size(), "all_to_all: expected x (",
                    ranks.size(), ", …), a row for each rank, got ", x.shape());
  return record("all_to_all", ranks.all_to_all(x.value().contiguous()), {x},
                [&ranks](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].take(ranks.all_to_all(dy.contiguous()));
                });
}

}  // namespace longhand

// y_r = x_(r - distance), modulo the number of ranks          dx_r = dy_(r + distance)
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"

namespace longhand {

Variable shift(const Variable& x, Communicator& ranks, int distance) {
  check<ShapeError>(x.defined(), "shift: an input is undefined");
  return record("shift", ranks.shift(x.value().contiguous(), distance), {x},
                [&ranks, distance](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].take(ranks.shift(dy.contiguous(), -distance));
                });
}

}  // namespace longhand

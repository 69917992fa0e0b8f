// y = sum over the ranks p of x_p, on every rank          dx_r = sum over the ranks p of their dy
#include "longhand/autograd/ops.h"
#include "longhand/core/communicator.h"

namespace longhand {
namespace {

Tensor summed(const Tensor& x, Communicator& ranks) {
  Tensor sum = x.contiguous();
  if (sum.shares_memory_with(x)) sum = sum.clone();
  ranks.sum(sum);
  return sum;
}

}  // namespace

Variable sum_over_ranks(const Variable& x, Communicator& ranks) {
  return record(
      "sum_over_ranks", summed(x.value(), ranks), {x},
      [&ranks](const Tensor& dy, std::span<GradSlot> dx) { dx[0].take(summed(dy, ranks)); });
}

}  // namespace longhand

// y = x[…, index, …]: a slice of one, whose axis goes away.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable select(const Variable& x, int axis, int64_t index) {
  const int64_t n = x.size(axis), i = index < 0 ? index + n : index;
  check<ShapeError>(0 <= i && i < n, "select: index ", index, " of axis ", axis, " of ", x.shape());
  return squeeze(slice(x, axis, i, i + 1), axis);
}

}  // namespace longhand

// y = x[…, index, …]: a slice of size 1 whose axis is removed.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable select(const Variable& x, int axis, int64_t index) {
  const int64_t n = x.size(axis), i = index < 0 ? index + n : index;
  check<ShapeError>(0 <= i && i < n, "select: index ", index, " is out of range along axis ", axis,
                    " of ", x.shape());
  return squeeze(slice(x, axis, i, i + 1), axis);
}

}  // namespace longhand

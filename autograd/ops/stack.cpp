// Joins parts along a new axis: a concatenation of slices of size 1.
#include "longhand/autograd/ops.h"

namespace longhand {

Variable stack(const Variables& parts, int axis) {
  check<ShapeError>(!parts.empty(), "stack: expected at least one tensor, got none");
  Variables slices;
  for (const Variable& part : parts) {
    check<ShapeError>(part.shape() == parts[0].shape() && part.dtype() == parts[0].dtype(),
                      "stack: expected equal shapes and dtypes, got ", parts[0].shape(), " of ",
                      parts[0].dtype(), " and ", part.shape(), " of ", part.dtype());
    slices.push_back(unsqueeze(part, axis));
  }
  return concat(slices, axis);
}

}  // namespace longhand

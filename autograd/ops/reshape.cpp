// y has the elements of x, in row-major order, with another shape; dx is dy with the shape of x.
// Both are views if the strides allow it, otherwise copies.
#include "longhand/autograd/ops.h"

namespace longhand {
namespace {

Tensor reshaped(const Tensor& x, const Shape& shape) {
  const Tensor view = x.try_reshape(shape);
  return view.defined() ? view : x.contiguous().reshape(shape);
}

}  // namespace

Variable reshape(const Variable& x, const Shape& shape) {
  return record("reshape", reshaped(x.value(), shape), {x},
                [from = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  dx[0].take(reshaped(dy, from));
                });
}

}  // namespace longhand

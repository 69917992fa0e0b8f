// The same elements in row-major order under another shape; the gradient is dy under that of x. A
// view where the strides allow one, else a copy.
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

// y = sum of x over n elements / n          dx = dy / n, repeated
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/reduce.h"
#include "longhand/core/kernels/elementwise.h"

namespace longhand {
using namespace ops;

Variable mean(const Variable& x, ShortVector<int> axes, bool keep_axes) {
  const Reduction over("mean", x, axes);
  check<ShapeError>(over.count > 0, "mean: expected at least one element, got shape ", x.shape());
  const double n = static_cast<double>(over.count);
  return record("mean", over.reduce(x.value(), n, keep_axes), {x},
                [over, n](const Tensor& grad_out, std::span<GradSlot> grad_in) {
                  Tensor share = Tensor::empty(grad_out.shape(), grad_out.dtype());
                  dispatch_float(share.dtype(), [&]<class T>() {
                    kernels::elementwise<T>(
                        share, [by = static_cast<T>(n)](T dy) { return dy / by; },
                        kernels::in<T>(grad_out));
                  });
                  grad_in[0].take(over.repeat(share));
                });
}

}  // namespace longhand

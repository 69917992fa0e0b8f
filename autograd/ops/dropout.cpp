// y_i = keep_i x_i / (1 - p)          dx_i = keep_i dy_i / (1 - p)
// The backward pass recomputes keep_i instead of storing it.
#include "longhand/autograd/ops/dropout_mask.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

// to = beta to + keep * from * scale, for tensors of equal shape.
void drop(const Tensor& from, Tensor& to, const DropoutMask& mask, double beta) {
  const int64_t n = to.numel();
  dispatch_float(to.dtype(), [&]<class T>() {
    const T s = static_cast<T>(mask.scale()), b = static_cast<T>(beta);
    if (from.is_contiguous() && to.is_contiguous()) {
      const T* const x = from.data<T>();
      T* const y = to.data<T>();
      parallel_for(n, kernels::elements_per_task, [&](int64_t begin, int64_t end) {
        mask.for_pieces(begin, end - begin, [&](int64_t i, int64_t count, auto keep) {
          kernels::row_accumulate(y + begin + i, count, b, [=, piece = x + begin + i](int64_t j) {
            const T kept = piece[j] * s;
            return keep(j) ? kept : T{0};
          });
        });
      });
      return;
    }
    // The mask is row-major; elementwise_accumulate() handles tensors in other memory orders.
    Tensor kept = Tensor::empty(to.shape(), DType::u8);
    uint8_t* const k = kept.data<uint8_t>();
    parallel_for(n, kernels::elements_per_task, [&](int64_t begin, int64_t end) {
      mask.for_pieces(begin, end - begin, [&](int64_t i, int64_t count, auto keep) {
        for (int64_t j = 0; j < count; ++j) k[begin + i + j] = keep(j);
      });
    });
    kernels::elementwise_accumulate<T>(
        to, beta, [s](T x, uint8_t keep) { return keep ? x * s : T{0}; }, kernels::in<T>(from),
        kernels::in<uint8_t>(kept));
  });
}

}  // namespace

Variable dropout(const Variable& x, const DropoutOptions& options) {
  check_float("dropout", x);
  const DropoutMask mask("dropout", options, x.shape());
  if (!mask.on()) return x;
  Tensor out = Tensor::empty_ordered(x.shape(), x.dtype(), x.value().strides());
  drop(x.value(), out, mask, 0);
  return record("dropout", out, {x}, [mask](const Tensor& grad_out, std::span<GradSlot> grad_in) {
    const GradSlot::Accumulator dx = grad_in[0].accumulate();
    drop(grad_out, dx.grad, mask, dx.beta);
  });
}

}  // namespace longhand

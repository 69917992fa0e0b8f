// y = c ? a : b          da = c ? dy : 0, db = c ? 0 : dy
#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/pointwise.h"

namespace longhand {
using namespace ops;
namespace {

// grad = beta grad + (condition == side ? dy : 0)
void accumulate_side(GradSlot& slot, const Tensor& condition, bool side, const Tensor& dy) {
  const GradSlot::Accumulator to = slot.accumulate();
  dispatch_float(dy.dtype(), [&]<class T>() {
    kernels::elementwise_accumulate<T>(
        to.grad, to.beta, [side](uint8_t c, T d) { return (c != 0) == side ? d : T{0}; },
        kernels::in<uint8_t>(condition), kernels::in<T>(dy));
  });
}

}  // namespace

Variable where(const Tensor& condition, const Variable& a, const Variable& b) {
  check<ShapeError>(condition.dtype() == DType::u8, "where: expected a condition of u8, got ",
                    condition.dtype());
  check_float_pair("where", a, b);
  const Shape shape =
      broadcast_shape(condition.shape(), broadcast_shape(a.shape(), b.shape(), "where"), "where");
  const Tensor c = condition.expand(shape);
  const Variable x = broadcast_to(a, shape), y = broadcast_to(b, shape);
  Tensor out = empty_for_pointwise(x.value(), y.value());
  dispatch_float(out.dtype(), [&]<class T>() {
    kernels::elementwise<T>(
        out, [](uint8_t k, T u, T v) { return k ? u : v; }, kernels::in<uint8_t>(c),
        kernels::in<T>(x.value()), kernels::in<T>(y.value()));
  });
  return record("where", out, {x, y}, [c](const Tensor& dy, std::span<GradSlot> dx) {
    if (dx[0]) accumulate_side(dx[0], c, true, dy);
    if (dx[1]) accumulate_side(dx[1], c, false, dy);
  });
}

Variable where(const Tensor& condition, const Variable& a, double b) {
  check_float("where", a);
  return where(condition, a, Variable(Tensor::scalar(b, a.dtype())));
}

}  // namespace longhand

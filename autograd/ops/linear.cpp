// y = u + D(a Wᵀ + b),  a = D'(gelu(h)),  h = norm(x), where D, D' are dropouts and u is a residual
// (without options, a is x)
//
//   du = dy,  dz = D(dy),  dW = dzᵀ a,  db = sum of dz over the rows,  da = dz W,
//   dh = da D'(gelu'(h)),  and dx and the gradients of the norm's parameters as in normalise.cpp
//
// Only x is kept; the rest is recomputed, block by block: see linear_kernel.cpp.
#include <optional>
#include <utility>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/linear_kernel.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/autograd/ops/rows.h"

namespace longhand {
using namespace ops;
namespace {

void check_linear(const Variable& x, const Variable& weight, const Variable& bias,
                  const LinearOptions& options) {
  check<ShapeError>(x.rank() >= 1 && weight.rank() == 2 && x.size(-1) == weight.size(1),
                    "linear: expected x (…, in) and weight (out, in), got ", x.shape(), " and ",
                    weight.shape());
  check<ShapeError>(!bias.defined() || bias.shape() == Shape{weight.size(0)},
                    "linear: expected bias (out) and weight (out, in), got ", bias.shape(), " and ",
                    weight.shape());
  check<ShapeError>(weight.dtype() == x.dtype() && (!bias.defined() || bias.dtype() == x.dtype()),
                    "linear: expected one dtype, got x of ", x.dtype(), ", weight of ",
                    weight.dtype(), ", bias of ", bias.dtype());
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  const Variable& residual = options.residual;
  check<ShapeError>(
      !residual.defined() || (residual.shape() == shape && residual.dtype() == x.dtype()),
      "linear: expected a residual ", shape, " of ", x.dtype(), ", got ", residual.shape(), " of ",
      residual.dtype());
  check<ConfigError>(!options.norm || options.norm->eps >= 0, "linear: eps ",
                     options.norm ? options.norm->eps : 0, " of the norm: expected at least 0");
}

Prologue prologue_of(const Variable& x, const LinearOptions& options) {
  const NormOptions norm = options.norm.value_or(NormOptions{});
  return {options.norm ? norm_parameter("linear: norm", x, norm.weight, 1) : Tensor(),
          options.norm ? norm_parameter("linear: norm", x, norm.bias, 0) : Tensor(),
          norm.eps,
          norm.centred,
          options.gelu,
          {"linear", options.input}};
}

// Row-major memory for the gradient of a slot, or null if the slot needs none.
class WantedGradient {
 public:
  WantedGradient(GradSlot& slot, const Shape& shape) {
    if (slot) to_.emplace(slot, contiguous_strides(shape));
  }
  template <class T>
  GradientTo<T> in() {
    if (!to_) return {};
    return {to_->grad.data<T>(), static_cast<T>(to_->beta)};
  }
  void finish() {
    if (to_) to_->finish();
  }

 private:
  std::optional<StridedGradient> to_;
};

// The gradients of all inputs; that of x may be written in place over x.
void write_gradients(Tensor& x, const Tensor& weight, const Tensor& dy, const Prologue& prologue,
                     const Epilogue& epilogue, std::span<GradSlot> slots) {
  const Shape of_in{weight.size(1)}, of_out{weight.size(0)};
  WantedGradient dw(slots[1], weight.shape()), db(slots[2], of_out);
  WantedGradient dnorm_weight(slots[4], of_in), dnorm_bias(slots[5], of_in);
  dispatch_float(x.dtype(), [&]<class T>() {
    const auto run = [&](GradientTo<T> dx) {
      linear_backward<T>(rows<T>(std::as_const(x)), weight, rows<T>(dy), prologue, epilogue,
                         {dx, dw.in<T>(), db.in<T>(), dnorm_weight.in<T>(), dnorm_bias.in<T>()});
    };
    const auto write = [&](Tensor& dx, double beta) { run({dx.data<T>(), static_cast<T>(beta)}); };
    if (slots[0] && prologue.changes())
      accumulate_over(slots[0], x, write);
    else if (slots[0])
      accumulate_with_strides(slots[0], x.strides(), write);
    else if (slots[1] || slots[2] || slots[4] || slots[5])
      run({});
  });
  for (WantedGradient* each : {&dw, &db, &dnorm_weight, &dnorm_bias}) each->finish();
}

}  // namespace

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                const LinearOptions& options) {
  check_linear(x, weight, bias, options);
  const Prologue prologue = prologue_of(x, options);
  const Epilogue epilogue{{"linear", options.output}};
  const Variable& residual = options.residual;
  // Dropout masks are in row-major order.
  const bool drops = prologue.dropout.on() || epilogue.dropout.on();
  const Tensor in = drops ? x.value().contiguous() : row_dense(x.value());
  Tensor out = empty_rows_like(in, weight.size(0));
  dispatch_float(in.dtype(), [&]<class T>() {
    const Tensor b = bias.defined() ? bias.value().contiguous() : Tensor();
    const Tensor u = residual.defined() ? with_strides(residual.value(), out.strides()) : Tensor();
    linear_forward<T>(rows<T>(in), weight.value(), b.defined() ? b.data<T>() : nullptr,
                      u.defined() ? u.data<T>() : nullptr, rows<T>(out), prologue, epilogue);
  });
  const NormOptions norm = options.norm.value_or(NormOptions{});
  return record("linear", out, {x, weight, bias, residual, norm.weight, norm.bias},
                [x = in, weight = weight.value(), prologue, epilogue, strides = out.strides()](
                    const Tensor& grad_out, std::span<GradSlot> grad_in) mutable {
                  if (grad_in[3]) grad_in[3].take(grad_out);
                  write_gradients(x, weight, with_strides(grad_out, strides), prologue, epilogue,
                                  grad_in);
                });
}

}  // namespace longhand

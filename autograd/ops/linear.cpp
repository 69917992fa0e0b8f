// y = u + D(a Wᵀ + b),  a = D'(gelu(h)),  h = norm(x), where D, D' are dropouts and u is a residual
// (without options, a is x)
//
//   du = dy,  dz = D(dy),  dW = dzᵀ a,  db = sum of dz over the rows,  da = dz W,
//   dh = da D'(gelu'(h)),  and dx and the gradients of the norm's parameters as in normalise.cpp
//
// Only x is kept; the rest is recomputed, block by block: see linear_kernel.cpp.
#include <utility>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/autograd/ops/linear_kernel.h"
#include "longhand/autograd/ops/normalise.h"
#include "longhand/autograd/ops/rows.h"
#include "longhand/core/memory/recycled.h"

namespace longhand {
using namespace ops;
namespace {

void check_layer(const Variable& x, const LinearParameters& layer, const LinearOptions& options) {
  const auto& [weight, bias] = layer;
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
}

Prologue prologue_of(const Variable& x, const LinearOptions& options) {
  const NormOptions norm = options.norm.value_or(NormOptions{});
  return {options.norm ? norm_parameter("linear: norm", x, norm.weight, 1) : Tensor(),
          options.norm ? norm_parameter("linear: norm", x, norm.bias, 0) : Tensor(),
          norm.eps,
          norm.centred,
          options.gelu,
          {"linear", options.input, x.shape()}};
}

// The inputs of the operation, in order: x, the parameters of each layer, those of the norm, and
// the residual.
constexpr size_t of_x = 0, of_layers = 1;
size_t of_norm(size_t layers) { return of_layers + 2 * layers; }
size_t of_residual(size_t layers) { return of_norm(layers) + 2; }

// The gradients of all inputs but the residual; that of x may be written in place over x.
void write_gradients(Tensor& x, const ShortVector<Tensor>& weights, const std::vector<Tensor>& dy,
                     const Prologue& prologue, const DropoutMask& dropout,
                     std::span<GradSlot> slots) {
  const Shape of_in{x.rank() ? x.size(-1) : 1};
  std::vector<StridedGradient> wanted;
  wanted.reserve(2 * weights.size() + 2);
  bool parameters = false;
  const auto want = [&](size_t slot, const Shape& shape) {
    wanted.emplace_back(slots[slot], contiguous_strides(shape));
    parameters = parameters || slots[slot];
  };
  want(of_norm(weights.size()), of_in);
  want(of_norm(weights.size()) + 1, of_in);
  for (size_t i = 0; i < weights.size(); ++i) {
    want(of_layers + 2 * i, weights[i].shape());
    want(of_layers + 2 * i + 1, Shape{weights[i].size(0)});
  }
  dispatch_float(x.dtype(), [&]<class T>() {
    std::vector<BackwardLayer<T>> layers;
    for (size_t i = 0; i < weights.size(); ++i)
      layers.push_back(
          {weights[i], rows<T>(dy[i]), wanted[2 + 2 * i].in<T>(), wanted[3 + 2 * i].in<T>()});
    const auto run = [&](GradientTo<T> dx) {
      linear_backward<T>(rows<T>(std::as_const(x)), layers, prologue, dropout,
                         {dx, wanted[0].in<T>(), wanted[1].in<T>()});
    };
    const auto write = [&](Tensor& dx, double beta) { run({dx.data<T>(), static_cast<T>(beta)}); };
    if (slots[of_x] && prologue.changes())
      accumulate_over(slots[of_x], x, write);
    else if (slots[of_x])
      accumulate_with_strides(slots[of_x], x.strides(), write);
    else if (parameters)
      run({});
  });
  for (StridedGradient& each : wanted) each.finish();
}

}  // namespace

Variables linear(const Variable& x, const ShortVector<LinearParameters>& layers,
                 const LinearOptions& options) {
  for (const LinearParameters& layer : layers) check_layer(x, layer, options);
  check<ConfigError>(!options.norm || options.norm->eps >= 0, "linear: eps ",
                     options.norm ? options.norm->eps : 0, " of the norm: expected at least 0");
  check<ConfigError>(layers.size() == 1 || (options.output.p == 0 && !options.residual.defined()),
                     "linear: dropout of the result and a residual require one layer, got ",
                     layers.size());
  const Prologue prologue = prologue_of(x, options);
  Shape result = x.shape();
  if (options.output.p > 0) result[-1] = layers[0].weight.size(0);
  const DropoutMask dropout("linear", options.output, result);
  const Variable& residual = options.residual;
  // Dropout masks are in row-major order.
  const bool drops = prologue.dropout.on() || dropout.on();
  const Tensor in = drops ? x.value().contiguous() : row_dense(x.value());
  const NormOptions norm = options.norm.value_or(NormOptions{});
  Variables inputs;
  inputs.reserve(of_residual(layers.size()) + 1);
  inputs.push_back(x);
  ShortVector<Tensor> outs, weights, biases;
  for (ShortVector<Tensor>* const each : {&outs, &weights, &biases}) each->reserve(layers.size());
  for (const auto& [weight, bias] : layers) {
    inputs.push_back(weight);
    inputs.push_back(bias);
    weights.push_back(weight.value());
    biases.push_back(bias.defined() ? bias.value().contiguous() : Tensor());
    outs.push_back(empty_rows_like(in, weight.size(0)));
  }
  for (const Variable* const input : {&norm.weight, &norm.bias, &residual})
    inputs.push_back(*input);
  dispatch_float(in.dtype(), [&]<class T>() {
    ShortVector<ForwardLayer<T>> to;
    to.reserve(layers.size());
    for (size_t i = 0; i < layers.size(); ++i)
      to.push_back({weights[i], layers[i].weight.requires_grad(),
                    biases[i].defined() ? std::as_const(biases[i]).data<T>() : nullptr,
                    rows<T>(outs[i])});
    const Tensor u =
        residual.defined() ? with_strides(residual.value(), outs[0].strides()) : Tensor();
    linear_forward<T>(rows<T>(in), std::span<const ForwardLayer<T>>(to),
                      u.defined() ? u.data<T>() : nullptr, prologue, dropout);
  });
  ShortVector<Strides> strides;
  for (const Tensor& out : outs) strides.push_back(out.strides());
  return record_all("linear", outs, inputs,
                    [x = in, weights, prologue, dropout, strides](
                        std::span<const Tensor> grads_out, std::span<GradSlot> grad_in) mutable {
                      if (GradSlot& slot = grad_in[of_residual(weights.size())])
                        slot.take(grads_out[0]);
                      std::vector<Tensor> dy;
                      for (size_t i = 0; i < weights.size(); ++i)
                        dy.push_back(with_strides(grads_out[i], strides[i]));
                      write_gradients(x, weights, dy, prologue, dropout, grad_in);
                    });
}

Variable linear(const Variable& x, const Variable& weight, const Variable& bias,
                const LinearOptions& options) {
  return linear(x, ShortVector<LinearParameters>{{weight, bias}}, options)[0];
}

}  // namespace longhand

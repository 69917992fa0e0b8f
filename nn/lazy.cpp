#include "longhand/nn/lazy.h"

#include <utility>

#include "longhand/core/memory/recycled.h"

namespace longhand::nn {
namespace {

// Steps in the order of the formula. A step can be added after lower ones.
enum Step { start = 0, normalise, activate, drop_input, multiply, drop_output };

}  // namespace

struct Lazy::Formula {
  Variable x;
  Step last = start;
  LinearOptions around = {};        // the prologue and epilogue of the product
  Variable weight = {}, bias = {};  // of the product, if it has been added

  Variable compute() const;
};

Variable Lazy::Formula::compute() const {
  if (last >= multiply) return longhand::linear(x, weight, bias, around);
  Variable y = x;
  if (around.norm) {
    const NormOptions& n = *around.norm;
    y = n.centred ? layer_norm(y, n.weight, n.bias, n.eps) : rms_norm(y, n.weight, n.eps);
  }
  if (around.gelu) y = longhand::gelu(y);
  return around.input.p > 0 ? longhand::dropout(y, around.input) : y;
}

Lazy::Lazy(const Variable& x) : formula_(make_recycled<Formula>(Formula{x})) {}
Lazy::Lazy(Formula formula) : formula_(make_recycled<Formula>(std::move(formula))) {}

Variable Lazy::eval() const {
  if (formula_->last != start) *formula_ = Formula{formula_->compute()};
  return formula_->x;
}

Shape Lazy::shape() const {
  Shape shape = formula_->x.shape();
  if (formula_->last >= multiply) shape[-1] = formula_->weight.size(0);
  return shape;
}

Lazy::Formula Lazy::before(int step) const {
  return formula_->last < step ? *formula_ : Formula{eval()};
}

Lazy norm(const Lazy& x, const NormOptions& options) {
  Lazy::Formula next = x.before(normalise);
  next.around.norm = options;
  next.last = normalise;
  return Lazy(std::move(next));
}

Lazy gelu(const Lazy& x) {
  Lazy::Formula next = x.before(activate);
  next.around.gelu = true;
  next.last = activate;
  return Lazy(std::move(next));
}

Lazy dropout(const Lazy& x, const DropoutOptions& options) {
  if (options.p == 0) return x;
  const bool of_product = x.formula_->last == multiply;
  Lazy::Formula next = x.before(of_product ? drop_output : drop_input);
  (of_product ? next.around.output : next.around.input) = options;
  next.last = of_product ? drop_output : drop_input;
  return Lazy(std::move(next));
}

Lazy linear(const Lazy& x, const Variable& weight, const Variable& bias) {
  Lazy::Formula next = x.before(multiply);
  next.weight = weight, next.bias = bias;
  next.last = multiply;
  return Lazy(std::move(next));
}

Variables linear(const Lazy& x, const ShortVector<LinearParameters>& layers) {
  const Lazy::Formula f = x.before(multiply);
  return longhand::linear(f.x, layers, f.around);
}

Variable operator+(const Variable& residual, const Lazy& branch) {
  const Lazy::Formula& f = *branch.formula_;
  if (f.last < multiply || !(residual.shape() == branch.shape()))
    return longhand::add(residual, branch.eval());
  LinearOptions options = f.around;
  options.residual = residual;
  return longhand::linear(f.x, f.weight, f.bias, options);
}

}  // namespace longhand::nn

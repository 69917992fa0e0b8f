#include "longhand/autograd/recompute.h"

namespace longhand {

Variable recompute(const std::function<Variable(const Variables&)>& f, const Variables& inputs) {
  Variables detached;
  std::vector<bool> needed;
  for (const Variable& input : inputs) {
    detached.push_back(input.detach());
    needed.push_back(input.requires_grad());
  }
  Tensor out;
  {
    const NoGrad no_grad;
    out = f(detached).value();
  }
  // record() drops the backward function if no input needs a gradient, but leaves captured by f may
  // need one: a dummy leaf represents them.
  Variables recorded = inputs;
  recorded.emplace_back(Tensor::zeros({}), true);
  return record(
      "recompute", out, recorded, [f, detached, needed](const Tensor& dy, std::span<GradSlot> dx) {
        const EnableGrad enable_grad;
        Variables leaves;
        for (size_t i = 0; i < detached.size(); ++i)
          leaves.emplace_back(detached[i].value(), needed[i]);
        const Variable again = f(leaves);
        if (again.requires_grad()) backward(again, dy);
        for (size_t i = 0; i < leaves.size(); ++i) {
          if (!dx[i]) continue;
          Tensor grad = leaves[i].take_grad();
          // Undefined if f does not depend on the input.
          dx[i].take(grad.defined() ? grad : Tensor::zeros(leaves[i].shape(), leaves[i].dtype()));
        }
        dx.back().take(Tensor::zeros({}));
      });
}

}  // namespace longhand

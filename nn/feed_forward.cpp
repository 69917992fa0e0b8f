#include "longhand/nn/feed_forward.h"

#include <cmath>
#include <numbers>

#include "longhand/autograd/ops.h"

namespace longhand::nn {

FeedForward::FeedForward(const Scope& scope_, Kind kind, int64_t width, int64_t hidden,
                         double dropout, int64_t fc1_rank, int64_t fc2_rank)
    : Module(scope_),
      kind_(kind),
      fc1_(scope("fc1"), width, kind == Kind::swiglu ? 2 * hidden : hidden, fc1_rank),
      dropout_(scope("dropout"), dropout),
      fc2_(scope("fc2"), hidden, width, fc2_rank) {}

Variable FeedForward::activation(const Variable& x) const {
  if (kind_ == Kind::relu) return relu(x);
  // x (1 + tanh(y)) / 2 = x sigmoid(2 y) with y = sqrt(2 / pi) (x + 0.044715 x³).
  const double c = 2 * std::sqrt(2 / std::numbers::pi);
  return x * sigmoid(x * affine(square(x), 0.044715 * c, c));
}

Lazy FeedForward::forward(const Lazy& x, const Pass& pass) const {
  const Running running(*this);
  const Lazy h = fc1_.forward(x);
  if (kind_ == Kind::gelu) return fc2_.forward(dropout_.forward(gelu(h), pass));
  if (kind_ != Kind::swiglu) return fc2_.forward(dropout_.forward(activation(h.eval()), pass));
  const Variable both = h.eval();
  const int axis = both.rank() - 1;
  const int64_t hidden = both.size(axis) / 2;
  const Variable a = slice(both, axis, 0, hidden), b = slice(both, axis, hidden, 2 * hidden);
  return fc2_.forward(dropout_.forward(silu(a) * b, pass));
}

}  // namespace longhand::nn

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
  if (kind_ == Kind::swiglu) {
    const Variables parts = fc1_.parts(x, 2);  // a and b
    return fc2_.forward(dropout_.forward(gated(parts[1], parts[0]), pass));
  }
  const Lazy h = fc1_.forward(x);
  const Lazy active = kind_ == Kind::gelu ? gelu(h) : Lazy(activation(h.eval()));
  return fc2_.forward(dropout_.forward(active, pass));
}

}  // namespace longhand::nn

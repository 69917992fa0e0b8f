#include "longhand/nn/feed_forward.h"

#include "longhand/autograd/ops.h"

namespace longhand::nn {

FeedForward::FeedForward(const Scope& scope_, int64_t width, int64_t hidden, double dropout)
    : Module(scope_),
      fc1_(scope("fc1"), width, hidden),
      dropout_(scope("dropout"), dropout),
      fc2_(scope("fc2"), hidden, width) {}

Variable FeedForward::forward(const Variable& x, const Pass& pass) const {
  return fc2_.forward(dropout_.forward(gelu(fc1_.forward(x)), pass));
}

}  // namespace longhand::nn

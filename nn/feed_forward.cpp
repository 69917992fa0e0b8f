#include "longhand/nn/feed_forward.h"

namespace longhand::nn {

FeedForward::FeedForward(const Scope& scope_, int64_t width, int64_t hidden, double dropout)
    : Module(scope_),
      fc1_(scope("fc1"), width, hidden),
      dropout_(scope("dropout"), dropout),
      fc2_(scope("fc2"), hidden, width) {}

Variable FeedForward::forward(const Variable& x, const Pass& pass, const Residual& add,
                              const Norm* norm) const {
  return fc2_.forward(
      fc1_.forward(x, behind(norm)),
      {.gelu = true, .input = dropout_.options(pass), .output = add.dropout, .residual = add.to});
}

}  // namespace longhand::nn

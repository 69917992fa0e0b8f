#include "longhand/nn/feed_forward.h"

namespace longhand::nn {

FeedForward::FeedForward(const Scope& scope_, int64_t width, int64_t hidden, double dropout,
                         int64_t fc1_rank, int64_t fc2_rank)
    : Module(scope_),
      fc1_(scope("fc1"), width, hidden, fc1_rank),
      dropout_(scope("dropout"), dropout),
      fc2_(scope("fc2"), hidden, width, fc2_rank) {}

Lazy FeedForward::forward(const Lazy& x, const Pass& pass) const {
  const Running running(*this);
  return fc2_.forward(dropout_.forward(gelu(fc1_.forward(x)), pass));
}

}  // namespace longhand::nn

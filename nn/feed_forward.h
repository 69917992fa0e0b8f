// The feed-forward part of a block.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/linear.h"

namespace longhand::nn {

/// fc2(dropout(gelu(fc1(x)))), where fc1 maps width to hidden and fc2 back. Vaswani et al. 2017,
/// eq. 2, with GELU instead of ReLU.
class FeedForward : public Module {
 public:
  FeedForward(const Scope& scope, int64_t width, int64_t hidden, double dropout);
  Lazy forward(const Lazy& x, const Pass& pass) const;

 private:
  Linear fc1_;
  Dropout dropout_;
  Linear fc2_;
};

}  // namespace longhand::nn

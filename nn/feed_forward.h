// The feed-forward part of a block.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/low_rank_linear.h"

namespace longhand::nn {

/// fc2(dropout(gelu(fc1(x)))), where fc1 maps width to hidden and fc2 back. Vaswani et al. 2017,
/// eq. 2, with GELU instead of ReLU. Each layer has the given rank; 0: full.
class FeedForward : public Module {
 public:
  FeedForward(const Scope& scope, int64_t width, int64_t hidden, double dropout,
              int64_t fc1_rank = 0, int64_t fc2_rank = 0);
  Lazy forward(const Lazy& x, const Pass& pass) const;

 private:
  LinearOfRank fc1_;
  Dropout dropout_;
  LinearOfRank fc2_;
};

}  // namespace longhand::nn

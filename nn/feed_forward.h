// The feed-forward part of a block.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/low_rank_linear.h"

namespace longhand::nn {

/// fc2(dropout(f(fc1(x)))), where fc1 maps width to hidden and fc2 back, for f GELU, its tanh
/// approximation or ReLU (Vaswani et al. 2017, eq. 2), or fc2(dropout(silu(a) b)), where fc1 maps
/// to a and b of width hidden (SwiGLU: Shazeer 2020, arXiv 2002.05202, eq. 6). Rank 0: full rank.
class FeedForward : public Module {
 public:
  enum class Kind { gelu, gelu_tanh, relu, swiglu };
  FeedForward(const Scope& scope, Kind kind, int64_t width, int64_t hidden, double dropout,
              int64_t fc1_rank = 0, int64_t fc2_rank = 0);
  Lazy forward(const Lazy& x, const Pass& pass) const;

 private:
  Variable activation(const Variable& x) const;

  Kind kind_;
  LinearOfRank fc1_;
  Dropout dropout_;
  LinearOfRank fc2_;
};

}  // namespace longhand::nn

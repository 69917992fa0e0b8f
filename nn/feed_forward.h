// The feed-forward part of a block.
#pragma once

#include "longhand/nn/dropout.h"
#include "longhand/nn/linear.h"
#include "longhand/nn/norm.h"

namespace longhand::nn {

/// fc2(dropout(gelu(fc1(x)))), fc1 from width to hidden, fc2 back. Vaswani et al. 2017, eq. 2, with
/// the GELU. With a norm, of norm(x).
class FeedForward : public Module {
 public:
  FeedForward(const Scope& scope, int64_t width, int64_t hidden, double dropout);
  Variable forward(const Variable& x, const Pass& pass, const Residual& add = {},
                   const Norm* norm = nullptr) const;

 private:
  Linear fc1_;
  Dropout dropout_;
  Linear fc2_;
};

}  // namespace longhand::nn

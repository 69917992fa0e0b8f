// A table of vectors.
#pragma once

#include "longhand/nn/init.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// Rows of weight (count, width), which starts N(0, std).
class Embedding : public Module {
 public:
  Embedding(const Scope& scope, int64_t count, int64_t width, double std = 0.02);
  /// tokens of i32, any shape: (tokens' shape, width). Throws ShapeError outside of 0 … count-1.
  Variable forward(const Tensor& tokens) const;

  Parameter weight;
};

}  // namespace longhand::nn

// Embedding: a table of vectors.
#pragma once

#include "longhand/nn/init.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// Looks up rows of weight (count, width), initialised from N(0, 0.02²).
class Embedding : public Module {
 public:
  Embedding(const Scope& scope, int64_t count, int64_t width);
  /// Returns (tokens' shape, width) for i32 tokens of any shape. Throws ShapeError for tokens
  /// outside of 0 … count-1.
  Variable forward(const Tensor& tokens) const;

  Parameter weight;
};

}  // namespace longhand::nn

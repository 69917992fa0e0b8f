// How features are computed from operands, tile by tile.
#pragma once

#include "longhand/core/tensor.h"

namespace longhand::attention {

/// The m features of queries and keys x, rows of D numbers. By default they are x itself.
struct FeatureFormula {
  /// Whether the features are e^t instead of t. Factors that cancel are chosen so that none overflows.
  bool exponentials = false;
  /// W (m, D) or (H, m, D), a constant: t = W x for queries, W x - half_norm |x|² for keys; only
  /// with exponentials or waves. Undefined: t = x.
  Tensor projection{};
  double half_norm = 0;
  /// Whether the features are [cos W x, sin W x], times e^(-half_norm |x|²) for keys; a factor common
  /// to all keys of a head is chosen so that the largest of these is 1. Not in a scan.
  bool waves = false;
  /// b, (m) or (H, m) like W, a constant: waves are cos(W x + b) instead.
  Tensor phases{};
};

}  // namespace longhand::attention

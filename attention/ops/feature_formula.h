// How features are computed from operands, tile by tile.
#pragma once

#include "longhand/core/tensor.h"

namespace longhand::attention {

/// The m features of queries and keys x, rows of D elements. By default, x itself.
struct FeatureFormula {
  /// Whether features are e^t instead of t. Cancelling factors are chosen so that none overflows.
  bool exponentials = false;
  /// W (m, D) or (H, m, D), a constant: t = W x for queries, W x - half_norm |x|² for keys; only
  /// with exponentials or waves. Undefined: t = x.
  Tensor projection{};
  double half_norm = 0;
  /// Whether the features are [cos W x, sin W x], times e^(-half_norm |x|²) for keys, scaled by a
  /// factor common to all keys of a head so that the largest such factor is 1. Not for scans.
  bool waves = false;
  /// b, (m) or (H, m) like W, a constant: waves are then cos(W x + b).
  Tensor phases{};
};

}  // namespace longhand::attention

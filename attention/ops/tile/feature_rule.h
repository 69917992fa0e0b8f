// FeatureRule: a feature map and the sizes of its operands.
#pragma once

#include "longhand/attention/ops/feature_formula.h"
#include "longhand/autograd/variable.h"
#include "longhand/core/error.h"

namespace longhand::attention::tile {

/// The formula of the m features of x with D elements; its tensors are contiguous or undefined.
struct FeatureRule : FeatureFormula {
  int64_t D, m;

  /// Whether each row of W gives two features. A block of features then holds the cosines of its
  /// rows, followed by their sines.
  bool pairs() const { return waves && !phases; }
};

/// The rule for x (B, N, H, D). Throws ShapeError, naming `op`, if the projection does not match x.
inline FeatureRule feature_rule(const char* op, const Variable& x, const FeatureFormula& formula) {
  FeatureRule rule{formula, x.size(3), x.size(3)};
  Tensor &W = rule.projection, &phases = rule.phases;
  check<ShapeError>(
      !W.defined() ||
          ((W.rank() == 2 || (W.rank() == 3 && W.size(0) == x.size(2))) &&
           W.size(-1) == x.size(3) && W.dtype() == x.dtype() && (rule.exponentials || rule.waves)),
      op, ": expected a projection (m, D) or (H, m, D), only with exponentials or waves, for q ",
      x.shape(), " of ", x.dtype(), ", got ", W.shape());
  check<ShapeError>(!rule.waves || (W.defined() && !rule.exponentials), op,
                    ": expected a projection, and no exponentials, with waves");
  check<ShapeError>(
      !phases.defined() || (rule.waves && phases.dtype() == W.dtype() &&
                            phases.unsqueeze(-1).shape() == W.slice(-1, 0, 1).shape()),
      op, ": expected a phase for each row of the projection, only with waves, got ",
      phases.shape());
  if (W.defined()) {
    W = W.contiguous();
    rule.m = W.size(-2) * (rule.pairs() ? 2 : 1);
  }
  if (phases.defined()) phases = phases.contiguous();
  return rule;
}

}  // namespace longhand::attention::tile

// Values that are computed on first use, so that a linear layer can fuse its neighbours.
#pragma once

#include <memory>

#include "longhand/autograd/ops.h"

namespace longhand::nn {

/// The result of a layer as a formula: residual + dropout(W dropout(gelu(norm(x))) + b), or a part
/// of it. It is computed when it is used as a Variable, by a single linear() if there is a W:
/// layers compose as written, and steps that belong together share a pass over memory. The result
/// is the same as if each step were computed separately, and bitwise identical to linear().
///
/// A step that does not fit into the formula triggers the computation of the steps before it.
/// Copies are handles to one value, which is computed at most once.
class Lazy {
 public:
  /// A value that is already computed.
  Lazy(const Variable& x);

  /// Computes the value.
  Variable eval() const;
  operator Variable() const { return eval(); }
  Tensor value() const { return eval().value(); }
  /// The shape, without computing the value.
  Shape shape() const;

  friend Lazy norm(const Lazy& x, const NormOptions& options);
  friend Lazy gelu(const Lazy& x);
  friend Lazy dropout(const Lazy& x, const DropoutOptions& options);
  friend Lazy linear(const Lazy& x, const Variable& weight, const Variable& bias);
  friend Variables linear(const Lazy& x, const ShortVector<LinearParameters>& layers);
  friend Variable operator+(const Variable& residual, const Lazy& branch);

 private:
  struct Formula;
  explicit Lazy(Formula formula);
  // The formula, or one of only its value if it was computed or already includes `step`.
  Formula before(int step) const;

  std::shared_ptr<Formula> formula_;
};

/// These functions each add a step to the formula.
Lazy norm(const Lazy& x, const NormOptions& options);
Lazy gelu(const Lazy& x);
Lazy dropout(const Lazy& x, const DropoutOptions& options);
/// x Wᵀ + b, fused with the norm, GELU and dropout at the end of x; bias may be undefined.
Lazy linear(const Lazy& x, const Variable& weight, const Variable& bias);
/// Returns several layers of x, whose norm, GELU and dropout are computed once for all of them.
Variables linear(const Lazy& x, const ShortVector<LinearParameters>& layers);
/// Completes the formula: residual + branch, fused with the computation of the branch if that ends
/// with a linear layer and dropout.
Variable operator+(const Variable& residual, const Lazy& branch);

}  // namespace longhand::nn

// Values that are computed when they are needed, so that a linear layer can take in what stands
// around it.
#pragma once

#include <memory>

#include "longhand/autograd/ops.h"

namespace longhand::nn {

/// What a layer gives, as a formula: residual + dropout(W dropout(gelu(norm(x))) + b), or the part
/// of it that was asked for. It is computed once it is used as a Variable, by a single linear()
/// where there is a W: layers compose as they are written, and what belongs together is done in one
/// pass over memory. The result is the same as if each step were computed by itself; its bits are
/// those of linear().
///
/// A step that has no place in the formula computes what came before it. Copies are handles of one
/// value, which is computed at most once.
class Lazy {
 public:
  /// A value that is there already.
  Lazy(const Variable& x);

  /// Computes it.
  Variable eval() const;
  operator Variable() const { return eval(); }
  Tensor value() const { return eval().value(); }
  /// The shape, which is known beforehand.
  Shape shape() const;

  friend Lazy norm(const Lazy& x, const NormOptions& options);
  friend Lazy gelu(const Lazy& x);
  friend Lazy dropout(const Lazy& x, const DropoutOptions& options);
  friend Lazy linear(const Lazy& x, const Variable& weight, const Variable& bias);
  friend Variable operator+(const Variable& residual, const Lazy& branch);

 private:
  struct Formula;
  explicit Lazy(Formula formula);
  // The formula, or one of the value alone if it was computed or has come as far as `step`.
  Formula before(int step) const;

  std::shared_ptr<Formula> formula_;
};

/// Each of them is one more step of the formula.
Lazy norm(const Lazy& x, const NormOptions& options);
Lazy gelu(const Lazy& x);
Lazy dropout(const Lazy& x, const DropoutOptions& options);
/// x Wᵀ + b, of the norm, GELU and dropout that x ends with; bias may be undefined.
Lazy linear(const Lazy& x, const Variable& weight, const Variable& bias);
/// Ends the formula: residual + branch, in the pass over memory that computes the branch if it ends
/// with a linear layer and dropout.
Variable operator+(const Variable& residual, const Lazy& branch);

}  // namespace longhand::nn

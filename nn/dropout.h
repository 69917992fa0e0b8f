// Dropout as a module, whose name determines its random numbers.
#pragma once

#include "longhand/nn/lazy.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// Returns the dropout of a module of this full name in a pass: none in evaluation or if p is 0. In
/// a pass over a section of the tokens, the elements kept are those kept in a pass over all of
/// them. Throws Error for a training pass without a generator if p > 0.
DropoutOptions dropout_options(double p, const Pass& pass, const std::string& module);

/// dropout(x, p) while training, x otherwise. 0 <= p < 1.
class Dropout : public Module {
 public:
  Dropout(const Scope& scope, double p);
  /// Throws Error for a training pass without a generator if p > 0.
  Lazy forward(const Lazy& x, const Pass& pass) const;

 private:
  double p_;
};

}  // namespace longhand::nn

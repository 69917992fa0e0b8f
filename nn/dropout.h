// Dropout as a module: it has a name, and so random numbers of its own.
#pragma once

#include "longhand/nn/lazy.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// dropout(x, p) while training, x otherwise. 0 <= p < 1.
class Dropout : public Module {
 public:
  Dropout(const Scope& scope, double p);
  Lazy forward(const Lazy& x, const Pass& pass) const;

 private:
  double p_;
};

}  // namespace longhand::nn

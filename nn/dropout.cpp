#include "longhand/nn/dropout.h"

namespace longhand::nn {

Dropout::Dropout(const Scope& scope, double p) : Module(scope), p_(p) {
  check<ConfigError>(p >= 0 && p < 1, "dropout: ", p, " is not within [0, 1)");
}

Lazy Dropout::forward(const Lazy& x, const Pass& pass) const {
  if (!pass.training || p_ == 0) return x;
  return dropout(x, DropoutOptions{p_, pass.random.fork(full_name())});
}

}  // namespace longhand::nn

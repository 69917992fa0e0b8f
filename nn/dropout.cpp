#include "longhand/nn/dropout.h"

namespace longhand::nn {

DropoutOptions dropout_options(double p, const Pass& pass, const std::string& module) {
  if (!pass.training || p == 0) return {};
  return {p, pass.random.fork(module), pass.tokens};
}

Dropout::Dropout(const Scope& scope, double p) : Module(scope), p_(p) {
  check<ConfigError>(p >= 0 && p < 1, "dropout: expected p in [0, 1), got ", p);
}

Lazy Dropout::forward(const Lazy& x, const Pass& pass) const {
  const DropoutOptions options = dropout_options(p_, pass, full_name());
  return options.p == 0 ? x : dropout(x, options);
}

}  // namespace longhand::nn

#include "longhand/nn/norm.h"

#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::nn {

Norm::Norm(const Scope& scope_, const std::string& type, int64_t width)
    : Module(scope_), weight(scope("weight"), {width}, init::ones()) {
  check<ConfigError>(type == "layer_norm" || type == "rms_norm", "norm: \"", type,
                     "\" is neither layer_norm nor rms_norm");
  if (type == "layer_norm") bias.emplace(scope("bias"), Shape{width}, init::zeros());
}

Variable Norm::forward(const Variable& x) const {
  return bias ? layer_norm(x, weight, *bias) : rms_norm(x, weight);
}

}  // namespace longhand::nn

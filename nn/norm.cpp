#include "longhand/nn/norm.h"

#include "longhand/nn/init.h"

namespace longhand::nn {

Norm::Norm(const Scope& scope_, const std::string& type, int64_t width)
    : Module(scope_), weight(scope("weight"), {width}, init::ones()) {
  check<ConfigError>(type == "layer_norm" || type == "rms_norm", "norm: \"", type,
                     "\": expected layer_norm or rms_norm");
  if (type == "layer_norm") bias.emplace(scope("bias"), Shape{width}, init::zeros());
}

NormOptions Norm::options() const {
  if (bias) return {.weight = weight, .bias = *bias};
  return {.weight = weight, .eps = 1e-6, .centred = false};
}

}  // namespace longhand::nn

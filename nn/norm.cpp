#include "longhand/nn/norm.h"

#include "longhand/nn/init.h"

namespace longhand::nn {

Norm::Norm(const Scope& scope_, const std::string& type, int64_t width, double eps)
    : Module(scope_),
      weight(scope("weight"), {width}, init::ones()),
      eps_(eps > 0                ? eps
           : type == "layer_norm" ? 1e-5
                                  : 1e-6) {
  check<ConfigError>(type == "layer_norm" || type == "rms_norm", "norm: \"", type,
                     "\": expected layer_norm or rms_norm");
  if (type == "layer_norm") bias.emplace(scope("bias"), Shape{width}, init::zeros());
}

NormOptions Norm::options() const {
  if (bias) return {.weight = weight, .bias = *bias, .eps = eps_};
  return {.weight = weight, .eps = eps_, .centred = false};
}

}  // namespace longhand::nn

// Normalisation along the last axis.
#pragma once

#include <optional>
#include <string>

#include "longhand/nn/lazy.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// layer_norm (weight and bias) or rms_norm (weight only) over `width`.
class Norm : public Module {
 public:
  /// Throws ConfigError for any other type. eps 0: 1e-5 for layer_norm, 1e-6 for rms_norm.
  Norm(const Scope& scope, const std::string& type, int64_t width, double eps = 0);
  Lazy forward(const Lazy& x) const { return norm(x, options()); }
  NormOptions options() const;

  Parameter weight;               // (width), initialised to 1
  std::optional<Parameter> bias;  // (width), initialised to 0

 private:
  double eps_;
};

}  // namespace longhand::nn

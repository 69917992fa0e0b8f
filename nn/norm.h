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
  /// Throws ConfigError for any other type.
  Norm(const Scope& scope, const std::string& type, int64_t width);
  Lazy forward(const Lazy& x) const { return norm(x, options()); }
  NormOptions options() const;

  Parameter weight;               // (width), initialised to 1
  std::optional<Parameter> bias;  // (width), initialised to 0
};

}  // namespace longhand::nn

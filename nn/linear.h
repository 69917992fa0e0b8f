// Linear: a linear layer.
#pragma once

#include <optional>

#include "longhand/nn/init.h"
#include "longhand/nn/lazy.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// x Wᵀ + b, of shape (…, out), for x (…, in). weight (out, in) is initialised Xavier-uniform,
/// bias (out) with zeros.
class Linear : public Module {
 public:
  Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias = true,
         const Init& weight_init = init::xavier_uniform());
  Lazy forward(const Lazy& x) const;
  LinearParameters parameters() const { return {weight, bias ? Variable(*bias) : Variable()}; }

  Parameter weight;
  std::optional<Parameter> bias;
};

}  // namespace longhand::nn

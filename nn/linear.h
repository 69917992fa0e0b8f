// A linear layer.
#pragma once

#include <optional>

#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// What the last layer of a branch adds itself to: to + dropout(branch).
struct Residual {
  Variable to = {};
  DropoutOptions dropout = {};
};

/// x Wᵀ + b for x (…, in): (…, out). weight (out, in) starts Xavier-uniform, bias (out) zero.
class Linear : public Module {
 public:
  Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias = true,
         const Init& weight_init = init::xavier_uniform());
  Variable forward(const Variable& x, const LinearOptions& options = {}) const;

  Parameter weight;
  std::optional<Parameter> bias;
};

}  // namespace longhand::nn

#include "longhand/attention/bases/state_space.h"

#include <cmath>

namespace longhand::attention {

void StateSpaceOptions::describe(OptionVisitor& v) {
  v.boolean("skip", skip, "whether s v of the token itself is added, s learned for each head");
  v.boolean("norm", norm,
            "whether the gated result of a token is divided by its root mean square, with a "
            "learned weight");
  v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
}

StateSpaceAttention::StateSpaceAttention(const nn::Scope& scope_, const Config& config,
                                         const StateSpaceOptions& options)
    : ScanAttention(scope_, config, options.output()),
      decay_(scope("step"), scope("step_bias"), scope("log_rate"), config,
             // the default of PyTorch, as in the authors' code
             nn::init::uniform(1 / std::sqrt(static_cast<double>(config.width())))) {
  if (options.skip) skip_.emplace(scope("skip"), Shape{config.heads}, nn::init::ones());
  token_ = HeadDecay::work(config);
}

ScanInputs StateSpaceAttention::operands(const Inputs& in) const {
  const Variable step = decay_.steps(in.x);  // (B, N, H)
  return {in.q, in.k, in.v * unsqueeze(step, 3), decay_.of_steps(step)};
}

}  // namespace longhand::attention

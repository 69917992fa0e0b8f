#include "longhand/attention/bases/recurrence.h"

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {

Capabilities recurrence_capabilities(bool linear) {
  return {.averages = false,
          .linear = linear,
          .positional = true,
          .causal = true,
          .causal_only = true,
          .decodes = true,
          .uses_x = true,
          .needs = Needs::state,
          .time = "N D^2",
          .memory = "D^2"};
}

Variable without_decay_of_padding(const Variable& log_decay, const Tensor& lengths) {
  if (!lengths.defined() || !log_decay.defined()) return log_decay;
  const Tensor real = real_tokens(lengths, log_decay.size(1));  // (B, N, 1, 1)
  return where(log_decay.rank() == 4 ? real : real.squeeze(3), log_decay, 0.0);
}

Inputs sequences_of(const Token& token) {
  const auto one = [](const Tensor& t) {
    return t.defined() ? Variable(t.unsqueeze(1)) : Variable();
  };
  return {one(token.q), one(token.k), one(token.v), one(token.x)};
}

}  // namespace longhand::attention

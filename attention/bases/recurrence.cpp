#include "longhand/attention/bases/recurrence.h"

#include <cmath>

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

nn::Init decay_projection_init(int64_t in) {
  return nn::init::uniform(1 / std::sqrt(static_cast<double>(in)));
}

// b such that softplus(b) is a step: log(e^step - 1) = step + log(1 - e^-step).
void fill_step_bias(Tensor& b, const Generator& random) {
  Tensor values = Tensor::empty(b.shape(), DType::f64);
  fill_uniform(values, random, std::log(1e-3), std::log(1e-1));
  for (int64_t i = 0; i < values.numel(); ++i) {
    double& x = values.data<double>()[i];
    const double step = std::exp(x);
    x = step + std::log(-std::expm1(-step));
  }
  copy_into(b, values.to(b.dtype()));
}

void fill_log_rate(Tensor& A, const Generator& random) {
  Tensor values = Tensor::empty(A.shape(), DType::f64);
  fill_uniform(values, random, 1, 16);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data<double>()[i] = std::log(values.data<double>()[i]);
  copy_into(A, values.to(A.dtype()));
}

HeadDecay::HeadDecay(const nn::Scope& step_scope, const nn::Scope& bias_scope,
                     const nn::Scope& rate_scope, const Config& config)
    : step(step_scope, config.heads * config.head_dim, config.heads, false),
      step_bias(bias_scope, {config.heads}, fill_step_bias),
      log_rate(rate_scope, {config.heads}, fill_log_rate) {}

Variable HeadDecay::operator()(const Variable& x) const {
  return softplus(step.forward(x) + step_bias) * -exp(log_rate);
}

Work::Counts HeadDecay::work(const Config& config) {
  const double H = static_cast<double>(config.heads), D = static_cast<double>(config.head_dim);
  return {2 * H * D * H, 2 * H};
}

}  // namespace longhand::attention

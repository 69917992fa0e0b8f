#include "longhand/attention/bases/head_decay.h"

#include <cmath>

namespace longhand::attention {

// Sets b such that softplus(b) = step: log(e^step - 1) = step + log(1 - e^-step).
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
                     const nn::Scope& rate_scope, const Config& config, const nn::Init& step_init)
    : step(step_scope, config.width(), config.heads, false, step_init),
      step_bias(bias_scope, {config.heads}, fill_step_bias),
      log_rate(rate_scope, {config.heads}, fill_log_rate) {}

Work::Counts HeadDecay::work(const Config& config) {
  const double H = static_cast<double>(config.heads), D = static_cast<double>(config.head_dim);
  return {2 * H * D * H, 2 * H};
}

}  // namespace longhand::attention

// Decays per head computed from the tokens, for Mamba-2 and the gated delta rules.
#pragma once

#include "longhand/attention/variant.h"
#include "longhand/nn/init.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {

/// The decays of Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), g = -e^A softplus(y + b) with learned b
/// and A. These are initialised as in the authors' code: softplus(b) log-uniform on [0.001, 0.1],
/// e^A uniform on [1, 16].
void fill_step_bias(Tensor& b, const Generator& random);
void fill_log_rate(Tensor& A, const Generator& random);

/// Decays of this form for each token and head, with y = x W_g.
struct HeadDecay {
  HeadDecay(const nn::Scope& step_scope, const nn::Scope& bias_scope, const nn::Scope& rate_scope,
            const Config& config, const nn::Init& step_init = nn::init::xavier_uniform());
  /// The steps softplus(y + b) (B, N, H) for x (B, N, H D); of_steps() computes g from them.
  Variable steps(const Variable& x) const { return softplus(step.forward(x) + step_bias); }
  Variable of_steps(const Variable& s) const { return s * -exp(log_rate); }
  Variable operator()(const Variable& x) const { return of_steps(steps(x)); }
  /// The cost per token.
  static Work::Counts work(const Config& config);

  nn::Linear step;
  nn::Parameter step_bias, log_rate;  // (H)
};

}  // namespace longhand::attention

// What variants whose state decays have in common: of scans and of delta rules.
#pragma once

#include "longhand/attention/variant.h"
#include "longhand/nn/init.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {

/// A causal recurrence with a state of D x D numbers a head, computed from the tokens x; `linear`: in
/// v, which a norm of the result is not.
Capabilities recurrence_capabilities(bool linear);

/// log_decay (B, N, H) or (B, N, H, D), with 0 at padding: x is 0 there, which alone would be a decay
/// like any other, and padding must leave the state as it is. Undefined lengths: no padding.
Variable without_decay_of_padding(const Variable& log_decay, const Tensor& lengths);

/// A token as sequences of one; what is undefined stays undefined.
Inputs sequences_of(const Token& token);

/// The weights of a linear layer in which a row of `in` numbers is multiplied: U(-a, a), a =
/// in^(-1/2), the default of PyTorch, from which the projections of decays start in the papers'
/// code.
nn::Init decay_projection_init(int64_t in);

/// The decays of Mamba-2 (Dao & Gu 2024, arXiv 2405.21060), g = -e^A softplus(y + b) with b and A
/// learned, start as in the authors' code: softplus(b) log-uniform on [0.001, 0.1], e^A uniform on [1,
/// 16].
void fill_step_bias(Tensor& b, const Generator& random);
void fill_log_rate(Tensor& A, const Generator& random);

/// These decays of the tokens, one a head, with y = x W_g.
struct HeadDecay {
  HeadDecay(const nn::Scope& step_scope, const nn::Scope& bias_scope, const nn::Scope& rate_scope,
            const Config& config);
  /// g (B, N, H) of x (B, N, H D).
  Variable operator()(const Variable& x) const;
  /// The cost for a token.
  static Work::Counts work(const Config& config);

  nn::Linear step;
  nn::Parameter step_bias, log_rate;  // (H)
};

}  // namespace longhand::attention

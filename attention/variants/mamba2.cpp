// Mamba-2, the state space dual: each head decays by a factor computed from the token, and a token
// that decays the past more also writes more. Dao & Gu 2024 (arXiv 2405.21060), section 7, with the
// paper's C, B and X in place of q, k and v:
//
//   S_i = e^{Δ_i a} S_(i-1) + k_i (Δ_i v_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D) + s v_i
//   Δ_i = softplus(x_i Pᵀ + b),   a = -e^A,     P (H, H D); b, A and s (H), all learned
//
//   out_i = norm(o_i ∘ silu(x_i Wᵀ))
//
// with a root mean square norm over all H D channels of a token and a learned weight. The factor
// 1/sqrt(D) is not in the paper; the norm removes it. The short convolution of the paper's block
// before q, k and v is not part of the variant.
#include <cmath>

#include "longhand/attention/bases/state_space.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

using namespace conformance;

void mamba2_limits(Findings& f) {
  const OptionSet options{{"skip", false}, {"norm", false}, {"gate", false}};
  const auto variant = make_variant("mamba2", options, made(true));
  // e^(a (Δ_(j+1) + … + Δ_i)) Δ_j q·k / sqrt(D), with Δ from the variant's projection of x, which
  // is q here.
  const Sample x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const auto of = [&](const char* name) { return Variable(variant->state_dict().at(name)); };
  const Variable tokens(q.contiguous().reshape({1, N, H * D}));
  const Variable step = softplus(linear(tokens, of("step.weight")) + of("step_bias"));
  const Variable expected = definitions::retention(
      Variable(q) / 2, Variable(k) * unsqueeze(step, 3), -(step * exp(of("log_rate"))));
  equal(f, "weights", weights(*variant, q, k), expected.value().select(0, 0).select(0, 0), 1e-13);
  // Steps of 1 and rates -log γ.
  Tensor rates = Tensor::empty({H}, DType::f64);
  for (int64_t h = 0; h < H; ++h) rates.data<double>()[h] = std::log(-std::log(decay_of_head(h)));
  set(*variant, {{"step.weight", Tensor::zeros({H, H * D}, DType::f64)},
                 {"step_bias", Tensor::full({H}, std::log(std::expm1(1.0)), DType::f64)},
                 {"log_rate", rates}});
  equal(f, "constant steps and retnet", *variant, *make_variant("retnet", plain_retnet, made(true)),
        1e-12);
}

}  // namespace

Spec mamba2_variant() {
  return make_spec<StateSpaceOptions, StateSpaceAttention>(
      {.summary = "linear attention in which heads decay by steps computed from the tokens",
       .paper = "Dao & Gu 2024, arXiv 2405.21060",
       .cases = {{}, {{"skip", false}, {"norm", false}, {"gate", false}}},
       .evidence = {{"state-space-weights",
                     "the decays between two tokens times the step of the earlier one; with "
                     "constant steps it is retnet",
                     mamba2_limits}}});
}

}  // namespace longhand::attention

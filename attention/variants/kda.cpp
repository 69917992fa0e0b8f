// Kimi delta attention: the delta rule on a state in which each channel decays by its own factor.
// Kimi Team 2025 (arXiv 2510.26692), eq. 1:
//
//   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k_i (v_i - S'_iᵀ k_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//   g_i = -e^A softplus(x_i D_g U_g + b),   out_i = norm(o_i) ∘ sigmoid(x_i D_o U_o + c)
//
// with queries and keys of unit norm, after silu, and β_i = sigmoid(x_i P). The maps to decays and
// to the gate have rank r; A is learned for each head, b and c for each channel. The short
// convolution of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

using namespace conformance;

void kda_limits(Findings& f) {
  const auto kda = make_variant("kda", {{"gate", false}, {"rank", 2}}, made(true)),
             gated = make_variant("gated_deltanet", {{"gate", false}}, made(true));
  const Tensor rates = normal({H}, 5), steps = normal({H}, 6);
  set(*kda, {{"decay_up.weight", Tensor::zeros({H * D, 2}, DType::f64)},
             {"log_rate", rates.unsqueeze(1)},
             {"step_bias", steps.unsqueeze(1).expand({H, D}).contiguous()}});
  set(*gated, {{"step.weight", Tensor::zeros({H, H * D}, DType::f64)},
               {"log_rate", rates},
               {"step_bias", steps}});
  equal(f, "equal decays and gated_deltanet", *kda, *gated, 1e-12);
}

void kda_parity(Findings& f) {
  follows_parity(f, "kda", {{"silu", false}, {"negative", true}, {"norm", false}, {"gate", false}},
                 {{"beta.weight", Tensor::from<double>({400, -400}, {1, 2})},
                  {"decay_up.weight", Tensor::zeros({2, 2}, DType::f64)},
                  {"step_bias", Tensor::full({1, 2}, -800, DType::f64)}});
}

}  // namespace

Spec kda_variant() {
  return make_spec<ChannelDeltaOptions, ChannelDeltaAttention>(
      {.summary = "the delta rule on a state that decays by a factor per channel",
       .paper = "Kimi Team 2025, arXiv 2510.26692",
       .cases = {{},
                 {{"silu", false}, {"norm", false}, {"gate", false}},
                 {{"negative", true}, {"norm", false}, {"rank", 2}}},
       .evidence = {
           {"equal-channels", "with equal decays in a head it is gated_deltanet", kda_limits},
           {"parity", "with negative eigenvalues the state follows the parity of bits",
            kda_parity}}});
}

}  // namespace longhand::attention

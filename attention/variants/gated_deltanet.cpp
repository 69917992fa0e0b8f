// Gated DeltaNet: the delta rule on a state that decays by a factor for each head, computed from
// the token as in Mamba-2. Yang et al. 2024 (arXiv 2412.06464), eq. 10:
//
//   S'_i = e^{g_i} S_(i-1),   S_i = S'_i + β_i k_i (v_i - S'_iᵀ k_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//   g_i = -e^A softplus(x_i W_g + b),   out_i = norm(o_i) ∘ silu(x_i W)
//
// with queries and keys of unit norm, after silu, β_i = sigmoid(x_i P), and A and b learned for
// each head. The short convolution of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

using namespace conformance;

void gated_deltanet_limits(Findings& f) {
  for (const bool silu : {false, true}) {
    const auto gated =
        make_variant("gated_deltanet", {{"gate", false}, {"silu", silu}}, made(true));
    set(*gated, {{"log_rate", Tensor::full({H}, -800, DType::f64)}});  // e^-800 is 0
    equal(f, concat_message("without decay", silu ? ", after silu" : ""), *gated,
          *make_variant("deltanet", {{"silu", silu}}, made(true)), 1e-12);
  }
}

void gated_deltanet_parity(Findings& f) {
  follows_parity(f, "gated_deltanet",
                 {{"silu", false}, {"negative", true}, {"norm", false}, {"gate", false}},
                 {{"beta.weight", Tensor::from<double>({400, -400}, {1, 2})},
                  {"step.weight", Tensor::zeros({1, 2}, DType::f64)},
                  {"step_bias", Tensor::full({1}, -800, DType::f64)}});
}

}  // namespace

Spec gated_deltanet_variant() {
  return make_spec<GatedDeltaOptions, GatedDeltaAttention>(
      {.summary = "the delta rule on a state that decays by a factor per head",
       .paper = "Yang et al. 2024, arXiv 2412.06464",
       .cases = {{},
                 {{"silu", false}, {"norm", false}, {"gate", false}},
                 {{"negative", true}, {"norm", false}}},
       .evidence = {{"without-decay", "without decay it is deltanet", gated_deltanet_limits},
                    {"parity", "with negative eigenvalues the state follows the parity of bits",
                     gated_deltanet_parity}}});
}

}  // namespace longhand::attention

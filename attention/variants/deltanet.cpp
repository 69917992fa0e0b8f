// DeltaNet: linear attention whose state is corrected by the delta rule: the value stored for a key
// is partly replaced by the new one instead of being added to. Schlag et al. 2021 (arXiv
// 2102.11174); Yang et al. 2024 (arXiv 2406.06484), eq. 4, in blocks:
//
//   S_i = S_(i-1) + β_i k_i (v_i - S_(i-1)ᵀ k_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//
// with queries and keys of unit norm, after silu, and write strengths β_i = sigmoid(x_i P), one per
// head. With β up to 2 a transition I - β k kᵀ may have the eigenvalue -1 (Grazzi et al. 2024,
// arXiv 2411.12537). The short convolution of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

using namespace conformance;

// With orthonormal keys, no key stores anything of another, so nothing is corrected.
void deltanet_limits(Findings& f) {
  const auto variant =
      make_variant("deltanet", {{"silu", false}, {"norm", false}}, {.heads = 1, .causal = true});
  set(*variant, {{"beta.weight", Tensor::zeros({1, D}, DType::f64)}});  // β = 1/2
  const Variable q(normal({1, D, 1, D}, 1, DType::f64, 1)), k(identity(D).reshape({1, D, 1, D}));
  const Variable expected =
      definitions::retention(q / (4 * sqrt(sum(square(q), {3}, true))), k);  // 4 = 2 sqrt(D)
  // Long enough for the eps that is added to squared norms not to matter.
  const auto longer = [](const Variable& x) { return affine(x, 1e4).value(); };
  equal(f, "weights", weights(*variant, longer(q), longer(k)),
        expected.value().select(0, 0).select(0, 0), 1e-9);
}

void deltanet_parity(Findings& f) {
  follows_parity(f, "deltanet", {{"silu", false}, {"negative", true}, {"norm", false}},
                 {{"beta.weight", Tensor::from<double>({400, -400}, {1, 2})}});
}

}  // namespace

Spec deltanet_variant() {
  return make_spec<DeltaRuleOptions, UnitDeltaAttention>(
      {.summary = "linear attention whose state is corrected by the delta rule",
       .paper = "Yang et al. 2024, arXiv 2406.06484",
       .cases = {{}, {{"silu", false}, {"norm", false}}, {{"negative", true}, {"norm", false}}},
       .evidence = {
           {"orthonormal-keys", "with orthonormal keys it is linear attention", deltanet_limits},
           {"parity", "with negative eigenvalues the state follows the parity of bits",
            deltanet_parity}}});
}

}  // namespace longhand::attention

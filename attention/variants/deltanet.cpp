// DeltaNet: linear attention whose state is corrected by the delta rule: what a key holds is replaced
// by its new value, in part, instead of being added to. Schlag et al. 2021 (arXiv 2102.11174); Yang
// et al. 2024 (arXiv 2406.06484), eq. 4, in blocks:
//
//   S_i = S_(i-1) + β_i k_i (v_i - S_(i-1)ᵀ k_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//
// with queries and keys of length 1, after silu, and strengths β_i = sigmoid(x_i P), one a head. With
// strengths up to 2 a transition I - β k kᵀ may have the eigenvalue -1 (Grazzi et al. 2024, arXiv
// 2411.12537). The short convolution of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

class DeltaNet final : public UnitDeltaAttention {
 public:
  DeltaNet(const nn::Scope& scope_, const Config& config, const DeltaRuleOptions& options)
      : UnitDeltaAttention(scope_, config, options) {}
};

}  // namespace

Spec deltanet_variant() {
  return make_spec<DeltaRuleOptions, DeltaNet>(
      {.summary = "linear attention whose state is corrected by the delta rule",
       .paper = "Yang et al. 2024, arXiv 2406.06484",
       .cases = {{}, {{"silu", false}, {"norm", false}}, {{"negative", true}, {"norm", false}}},
       .evidence = {{"orthonormal-keys", "with orthonormal keys it is linear attention",
                     conformance::deltanet_limits}}});
}

}  // namespace longhand::attention

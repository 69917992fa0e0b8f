// Kimi delta attention: the delta rule on a state each of whose channels decays by a factor of its
// own. Kimi Team 2025 (arXiv 2510.26692), eq. 1:
//
//   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k_i (v_i - S'_iᵀ k_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//   g_i = -e^A softplus(x_i D_g U_g + b),   out_i = norm(o_i) ∘ sigmoid(x_i D_o U_o + c)
//
// with queries and keys of length 1, after silu, and β_i = sigmoid(x_i P). The maps of decays and of
// the gate have rank r; A is learned for each head, b and c for each channel. The short convolution
// of the paper's block is not part of the variant.
#include "longhand/attention/bases/delta_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

struct KdaOptions : DeltaRuleOptions {
  bool gate = true;
  int64_t rank = 1;

  static KdaOptions defaults(const Config& config) {
    KdaOptions options;
    options.rank = config.head_dim;
    return options;
  }
  void describe(OptionVisitor& v) {
    DeltaRuleOptions::describe(v);
    v.boolean("gate", gate, "whether the result is gated by a sigmoid of the tokens");
    v.integer("rank", rank, {1, 1 << 20}, "rank r of the maps from tokens to decays and gates",
              "the dimension of a head");
  }
};

class Kda final : public UnitDeltaAttention {
 public:
  Kda(const nn::Scope& scope_, const Config& config, const KdaOptions& options)
      : UnitDeltaAttention(scope_, config, options),
        decay_down_(scope("decay_down"), config.heads * config.head_dim, options.rank, false),
        decay_up_(scope("decay_up"), options.rank, config.heads * config.head_dim, false),
        step_bias_(scope("step_bias"), {config.heads, config.head_dim}, fill_step_bias),
        log_rate_(scope("log_rate"), {config.heads, 1}, fill_log_rate) {
    const int64_t width = config.heads * config.head_dim;
    if (options.gate) {
      gate_down_.emplace(scope("gate_down"), width, options.rank, false);
      gate_up_.emplace(scope("gate_up"), options.rank, width);
    }
    const double w = static_cast<double>(width), maps = options.gate ? 2 : 1;
    add_work({maps * low_rank_flops(w, static_cast<double>(options.rank)), (2 + maps) * w});
  }

 private:
  Variable log_decay(const Variable& x) const override {
    const Variable steps = low_rank_map(x, decay_down_.weight, decay_up_.weight, step_bias_);
    const Shape heads{x.size(0), x.size(1), step_bias_.size(0), step_bias_.size(1)};
    return softplus(reshape(steps, heads)) * -exp(log_rate_);  // (B, N, H, D)
  }
  Gate gate(const Variable& x) const override {
    return {gate_up_ ? low_rank_map(x, gate_down_->weight, gate_up_->weight, *gate_up_->bias)
                     : Variable(),
            GateFunction::sigmoid};
  }

  nn::Linear decay_down_, decay_up_;
  nn::Parameter step_bias_, log_rate_;  // (H, D), (H, 1)
  std::optional<nn::Linear> gate_down_, gate_up_;
};

using namespace conformance;
using namespace conformance::sizes;

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

}  // namespace

Spec kda_variant() {
  return make_spec<KdaOptions, Kda>(
      {.summary = "the delta rule on a state that decays by a factor per channel",
       .paper = "Kimi Team 2025, arXiv 2510.26692",
       .cases = {{},
                 {{"silu", false}, {"norm", false}, {"gate", false}},
                 {{"negative", true}, {"norm", false}, {"rank", 2}}},
       .evidence = {
           {"equal-channels", "with equal decays in a head it is gated_deltanet", kda_limits}}});
}

}  // namespace longhand::attention

// Retention: causal linear attention in which the past decays by a constant factor per head. Sun et
// al. 2023 (arXiv 2307.08621), eq. 5, 6 and 8, for heads h from 0:
//
//   S_i = γ_h S_(i-1) + k_i v_iᵀ,   o_i = S_iᵀ q_i / sqrt(D),   γ_h = 1 - 2^(-n-h),  n = 5
//
//   out_i = norm(o_i) ∘ silu(x_i Wᵀ)
//
// The norm divides each head by its root mean square; it makes the constants of the paper's
// normalisation of scores unnecessary. The paper's rotations of q and k (xPos) are an option of the
// model, positions = "rotary".
#include <cmath>

#include "longhand/attention/bases/scan_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

struct RetnetOptions {
  int64_t fastest = 5;
  bool norm = true, gate = true;

  void describe(OptionVisitor& v) {
    v.integer("fastest", fastest, {1, 40}, "n of the decay 1 - 2^(-n - h) of head h");
    v.boolean("norm", norm, "whether the result of a head is divided by its root mean square");
    v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
  }
  ScanOutput output() const { return {.norm = norm, .gate = gate}; }
  Capabilities capabilities() const {
    return {.averages = false,   // the weights of a query do not sum to 1
            .linear = !norm,     // in v
            .positional = true,  // permuting tokens changes the result
            .causal = true,
            .causal_only = true,  // a recurrence, without a form over all keys
            .decodes = true,      // ScanAttention overrides make_decoder()
            .uses_x = gate,       // reads Inputs::x
            .needs = Needs::state,
            .time = "N D^2",
            .memory = "D^2"};
  }
};

class Retnet final : public ScanAttention {
 public:
  Retnet(const nn::Scope& scope_, const Config& config, const RetnetOptions& options)
      : ScanAttention(scope_, config, options.output()),
        decays_(Tensor::empty({config.heads}, DType::f64)) {
    for (int64_t h = 0; h < config.heads; ++h)
      decays_.data<double>()[h] = std::log1p(-std::exp2(-static_cast<double>(options.fastest + h)));
    decays_ = decays_.to(parameter_dtype());
  }

  ScanInputs operands(const Inputs& in) const override {
    const Shape& s = in.q.shape();
    return {in.q, in.k, in.v, Variable(decays_.expand({s[0], s[1], s[2]}))};
  }

 private:
  Tensor decays_;  // (H): log γ
};

using namespace conformance;

void retention_weights(Findings& f) {
  const Sample x;
  Tensor decays = Tensor::empty({1, 1, H}, DType::f64);
  for (int64_t h = 0; h < H; ++h) decays.data<double>()[h] = std::log(decay_of_head(h));
  const Variable g(decays.expand({2, N, H})), q = Variable(x.q) / 2, k(x.k);  // sqrt(D) = 2
  for (const int64_t fastest : {5, 40}) {                                     // 1 - 2^-40: no decay
    const OptionSet options = extended(plain_retnet, {{"fastest", fastest}});
    const Tensor expected = definitions::retention(q, k, fastest == 5 ? g : Variable()).value();
    equal(f, concat_message("fastest = ", fastest),
          weights(*make_variant("retnet", options, made(true)), one(x.q, 0, N), one(x.k, 0, N)),
          expected.select(0, 0).select(0, 0), fastest == 5 ? 1e-13 : 1e-10);
  }
  // Every head has a decay of its own.
  const Tensor out = forward(*make_variant("retnet", plain_retnet, made(true)), x);
  const Variable expected = definitions::apply(definitions::retention(q, k, g), Variable(x.v));
  equal(f, "all heads", out, expected.value(), 1e-12);
}

}  // namespace

Spec retnet_variant() {
  return make_spec<RetnetOptions, Retnet>(
      {.summary = "linear attention in which the past decays by a constant factor per head",
       .paper = "Sun et al. 2023, arXiv 2307.08621",
       .cases = {{}, {{"fastest", 1}, {"norm", false}, {"gate", false}}},
       .evidence = {{"retention-weights",
                     "γ^(i-j) q·k / sqrt(D), without norm and gate; without a decay, q·k / sqrt(D)",
                     retention_weights}}});
}

}  // namespace longhand::attention

// Mamba-2, the state space dual: each head decays by a factor computed from the token, and a token
// that decays the past more also writes more. Dao & Gu 2024 (arXiv 2405.21060), section 7, with C,
// B and X of the paper in the places of q, k and v:
//
//   S_i = e^{Δ_i a} S_(i-1) + k_i (Δ_i v_i)ᵀ,   o_i = S_iᵀ q_i / sqrt(D) + s v_i
//   Δ_i = softplus(x_i Pᵀ + b),   a = -e^A,     P (H, H D); b, A and s (H), all learned
//
//   out_i = norm(o_i ∘ silu(x_i Wᵀ))
//
// with the root mean square norm of all H D numbers of a token and a learned weight. The factor
// 1/sqrt(D) is not in the paper; the norm removes it. The short convolution of the paper's block
// before q, k and v is not part of the variant.
#include <cmath>
#include <optional>

#include "longhand/attention/bases/head_decay.h"
#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/bases/scan_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

struct Mamba2Options {
  bool skip = true, norm = true, gate = true;

  void describe(OptionVisitor& v) {
    v.boolean("skip", skip, "whether s v of the token itself is added, s learned for each head");
    v.boolean("norm", norm,
              "whether the gated result of a token is divided by its root mean square, with a "
              "learned weight");
    v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
  }
  ScanOutput output() const {
    return {.norm = norm, .gate = gate, .norm_last = true, .weight = true};
  }
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
};

class Mamba2 final : public ScanAttention {
 public:
  Mamba2(const nn::Scope& scope_, const Config& config, const Mamba2Options& options)
      : ScanAttention(scope_, config, options.output()),
        decay_(
            scope("step"), scope("step_bias"), scope("log_rate"), config,
            // the default of PyTorch, from which the authors' code starts
            nn::init::uniform(1 / std::sqrt(static_cast<double>(config.heads * config.head_dim)))) {
    if (options.skip) skip_.emplace(scope("skip"), Shape{config.heads}, nn::init::ones());
    token_forward_ = HeadDecay::work(config);
    token_backward_ = {2 * token_forward_.flops, token_forward_.exponentials};
  }

  ScanInputs operands(const Inputs& in) const override {
    const Variable step = decay_.steps(in.x);  // (B, N, H)
    return {in.q, in.k, in.v * unsqueeze(step, 3), decay_.of_steps(step)};
  }
  Variable direct(const Inputs& in) const override {
    const double root = std::sqrt(static_cast<double>(in.v.size(3)));
    return skip_ ? in.v * unsqueeze(*skip_ * root, 1) : Variable();
  }

 private:
  HeadDecay decay_;
  std::optional<nn::Parameter> skip_;  // (H)
};

using namespace conformance;
using namespace conformance::sizes;

void mamba2_limits(Findings& f) {
  const OptionSet options{{"skip", false}, {"norm", false}, {"gate", false}};
  const auto variant = make_variant("mamba2", options, made(true));
  // e^(-a (Δ_(j+1) + … + Δ_i)) Δ_j q·k / sqrt(D), with Δ as the variant's projection of x, which is q
  // here, has it.
  const Sample x;
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N);
  const auto state = variant->state_dict();
  const auto of = [&](const char* name) { return Variable(state.at(name)); };
  const Variable tokens(q.contiguous().reshape({1, N, H * D}));
  const Variable step = softplus(linear(tokens, of("step.weight")) + of("step_bias"));
  const Variable expected = definitions::retention(
      Variable(q) / 2, Variable(k) * unsqueeze(step, 3), -(step * exp(of("log_rate"))));
  const double error =
      distance(weights(*variant, q, k), expected.value().select(0, 0).select(0, 0));
  f.expect(error <= 1e-13, "weights differ by ", error);
  f.measured("weights to ", error);
  // Steps of 1 and the rates -log γ.
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
  return make_spec<Mamba2Options, Mamba2>(
      {.summary = "linear attention in which heads decay by steps computed from the tokens",
       .paper = "Dao & Gu 2024, arXiv 2405.21060",
       .cases = {{}, {{"skip", false}, {"norm", false}, {"gate", false}}},
       .evidence = {{"state-space-weights",
                     "the decays between two tokens times the step of the earlier one; with "
                     "constant steps it is retnet",
                     mamba2_limits}}});
}

}  // namespace longhand::attention

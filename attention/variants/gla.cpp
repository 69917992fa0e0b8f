// Gated linear attention: each channel of a key decays by a gate computed from the token. Yang et
// al. 2023 (arXiv 2312.06635), eq. 3 and section 4.4:
//
//   S_i = diag(e^{g_i}) S_(i-1) + k_i v_iᵀ,   o_i = S_iᵀ q_i / sqrt(D)
//   g_i = log σ(x_i Aᵀ Bᵀ + b) / τ,           A (r, H D), B (H D, r), r = 16, τ = 16
//
//   out_i = norm(o_i) ∘ silu(x_i Wᵀ)
//
// with a root mean square norm of each head with a learned weight (D), as in the authors' code. The
// root of order τ keeps decays near 1: initially they are σ(0)^(1/16) = 0.958.
#include <algorithm>
#include <cmath>

#include "longhand/attention/bases/recurrence.h"
#include "longhand/attention/bases/scan_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/registry.h"
#include "longhand/nn/low_rank_linear.h"

namespace longhand::attention {
namespace {

struct GlaOptions {
  int64_t decay_rank = 16;
  double temperature = 16;
  bool norm = true, gate = true;

  static GlaOptions defaults(const Config& config) {
    return {.decay_rank = std::min<int64_t>(16, config.width())};
  }

  void describe(OptionVisitor& v) {
    v.integer("decay_rank", decay_rank, {1, 1 << 20}, "rank r of the projection of x to decays",
              "16, at most d_model");
    v.number("temperature", temperature, NumberRange::above(0),
             "τ of the decays σ(x Aᵀ Bᵀ + b)^(1/τ): a larger one remembers longer");
    describe_norm(v, norm);
    v.boolean("gate", gate, "whether the result is gated by silu(x Wᵀ)");
  }
  void check(const Config& config) const {
    config.options.require(
        decay_rank <= config.width(), "decay_rank",
        concat_message("expected at most d_model = ", config.width(), ", got ", decay_rank));
  }
  ScanOutput output() const { return {.norm = norm, .gate = gate, .weight = true}; }
  Capabilities capabilities() const { return recurrence_capabilities(!norm); }
};

class Gla final : public ScanAttention {
 public:
  Gla(const nn::Scope& scope_, const Config& config, const GlaOptions& options)
      : ScanAttention(scope_, config, options.output()),
        temperature_(options.temperature),
        decay_(scope("decay"), config.width(), config.width(), options.decay_rank) {
    const double width = static_cast<double>(config.width());
    // Per decay: σ, and the exponential that applies it.
    token_ = {4 * width * static_cast<double>(options.decay_rank), 2 * width};
  }

  ScanInputs operands(const Inputs& in) const override {
    const Variable g = softplus(decay_.forward(in.x), -1, -1 / temperature_);
    return {in.q, in.k, in.v, reshape(g, in.q.shape())};
  }

 private:
  double temperature_;
  nn::LowRankLinear decay_;
};

using namespace conformance;

// σ(b)^(1/16) = γ of the head, for all of its channels and for every token.
void gla_limits(Findings& f) {
  const auto variant =
      make_variant("gla", {{"decay_rank", 3}, {"norm", false}, {"gate", false}}, made(true));
  Tensor bias = Tensor::empty({H * D}, DType::f64);
  for (int64_t c = 0; c < H * D; ++c) {
    const double p = std::pow(decay_of_head(c / D), 16);
    bias.data<double>()[c] = std::log(p / (1 - p));
  }
  set(*variant, {{"decay.weight_in", Tensor::zeros({3, H * D}, DType::f64)}, {"decay.bias", bias}});
  equal(f, "equal gates and retnet", *variant, *make_variant("retnet", plain_retnet, made(true)),
        1e-12);
}

}  // namespace

Spec gla_variant() {
  return make_spec<GlaOptions, Gla>(
      {.summary = "linear attention in which channels decay by gates computed from the tokens",
       .paper = "Yang et al. 2023, arXiv 2312.06635",
       .cases = {{{"decay_rank", 3}},
                 {{"decay_rank", 3}, {"temperature", 2.0}, {"norm", false}, {"gate", false}}},
       .evidence = {{"equal-gates", "with the same constant gate for all channels it is retnet",
                     gla_limits}}});
}

}  // namespace longhand::attention

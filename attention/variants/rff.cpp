// Trigonometric random features. Rahimi & Recht 2007; Peng et al. 2021 (arXiv 2103.02143), eq. 4-5.
// With rows w_l of W (m, D) drawn from N(0, I) and ψ(x) = m^(-1/2) [cos W x, sin W x] (or
// (2/m)^(1/2) cos(W x + b)):  E ψ(x)·ψ(y) = exp(-|x - y|²/2). The kernels are
//
//   softmax:   exp(|x̂|²/2) ψ(x̂), x̂ = D^(-1/4) x:      exp(x̂·ŷ) = exp(x·y / sqrt(D))
//   gaussian:  ψ(x̂ / sigma):                          exp(-|x̂ - ŷ|² / (2 sigma²))
//   rfa:       ψ(s ∘ x/|x|), s (H, D) trained:        exp(-|s ∘ (x/|x| - y/|y|)|²/2), which for
//              equal s is softmax attention of unit vectors, since their norms cancel
//
// With `gate`, of rfa (RFA-GATE there): earlier tokens decay by g_i = σ(x_i·w + b) of the head, and
// the token itself enters with the rest: S_i = g_i S_(i-1) + (1 - g_i) φ(k_i) v_iᵀ, and z alike.
//
// Constants that cancel in num / den are left out: exp(|q̂|²/2) and m^(-1/2). Keys keep the factor
// exp(|k̂|²/2 - max |k̂|²/2), with the maximum over real tokens (causal: those up to the query).
// Features are signed, so den may be near or below 0 and the result far from exact: this is
// inherent in the method. Normalisers that are not positive are counted, and `guard` bounds them.
#include <cmath>

#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/features/random_features.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"
#include "longhand/nn/linear.h"

namespace longhand::attention {
namespace {

struct RffOptions {
  std::string kernel = "softmax", waves = "sin_cos";
  bool gate = false;
  RandomFeatureOptions projection;
  double sigma = 1;
  GuardOptions guard;

  bool has_phases() const { return waves == "cos_bias"; }

  void describe(OptionVisitor& v) {
    v.choice("kernel", kernel, {"softmax", "gaussian", "rfa"},
             "kernel that the features approximate: softmax, Gaussian, or Gaussian of unit vectors "
             "with learned frequencies");
    v.when(kernel == "gaussian", "kernel = \"gaussian\"", [&] {
      v.number("sigma", sigma, {1e-6, 1e6}, "bandwidth of the Gaussian kernel of x / D^(1/4)");
    });
    v.when(kernel == "rfa", "kernel = \"rfa\"", [&] {
      v.boolean("gate", gate,
                "whether earlier tokens decay by σ(x w + b) of each head, and the token itself "
                "enters with the rest; causal only");
    });
    v.choice("waves", waves, {"sin_cos", "cos_bias"},
             "type of features: sine and cosine pairs, or cosines with a random phase");
    projection.describe(v);
    guard.describe(v);
  }

  Capabilities capabilities() const {
    return {.random = !projection.learned(),
            .averages = guard.guard == "none",
            .positional = gate,
            .signed_weights = true,
            .causal = true,
            .causal_only = gate,
            .decodes = true,
            .uses_x = gate,
            .needs = Needs::sums,
            .time = "N m D",
            .memory = "N m",
            .state = projection.state(has_phases())};
  }
};

class RffMap final : public RandomFeatureMap {
 public:
  RffMap(const MapScope& scope, const RffOptions& options)
      : RandomFeatureMap(scope, options.projection, options.has_phases(),
                         options.has_phases() ? 1 : 2, options.has_phases() ? 1 : 2),
        kernel_(options.kernel),
        scale_(kernel_ == "rfa" ? 1 : x_scale()) {
    const int64_t H = scope.config.heads, D = scope.config.head_dim;
    if (kernel_ == "gaussian") scale_ /= options.sigma;
    if (kernel_ == "rfa") sigma_.emplace(scope.scope("sigma"), Shape{H, D}, nn::init::ones());
    if (options.gate) {
      gate_.emplace(scope.scope("gate"), H * D, H);
      // Of a token as query or as key, to both of which the gate belongs.
      for (Work::Counts* const token : {&forward, &backward}) {
        token->flops += static_cast<double>(D * H);
        token->exponentials += 1;
      }
    }
    // cos² + sin² = 1 for each w; cos² is 1/2 on average
    const double m = static_cast<double>(options.projection.features);
    guard = options.guard.of(options.has_phases() ? m / 2 : m);
  }

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return wave_features(prepared(q), prepared(k), scale_, kernel_ == "softmax");
  }
  Features gated(Features f, const Variable& x) const override {
    if (!gate_) return f;
    const Variable u = gate_->forward(x);  // (B, N, H)
    f.log_decay = -softplus(-u);
    f.key = f.key * unsqueeze(sigmoid(-u), 3);
    return f;
  }

 private:
  // Returns x/|x| (0 stays 0) times the trained frequencies.
  Variable prepared(const Variable& x) const {
    if (kernel_ != "rfa") return x;
    const double root = std::sqrt(static_cast<double>(x.size(3)));
    return affine(rms_norm(x, {}, 1e-12), 1 / root) * *sigma_;
  }

  std::string kernel_;
  double scale_;
  std::optional<nn::Parameter> sigma_;  // (H, D), s above: frequencies, 1 / bandwidths
  std::optional<nn::Linear> gate_;
};

struct Rff final : FeatureAttention {
  Rff(const nn::Scope& scope_, const Config& config, const RffOptions& options)
      : FeatureAttention(scope_, config, [&](const MapScope& scope) {
          return std::make_unique<RffMap>(scope, options);
        }) {}
};

}  // namespace

Spec rff_variant() {
  return make_spec<RffOptions, Rff>(
      {.summary = "sines and cosines of random projections",
       .paper = "Rahimi & Recht 2007; Peng et al. 2021, arXiv 2103.02143",
       .cases = {{{"features", 20}},
                 {{"features", 20}, {"kernel", "gaussian"}, {"sigma", 1.5}, {"guard", "add"}},
                 {{"features", 20}, {"kernel", "rfa"}, {"guard", "clamp"}, {"heads", "per_head"}},
                 {{"features", 20}, {"kernel", "gaussian"}, {"waves", "cos_bias"}, {"draw", "iid"}},
                 {{"features", 20}, {"kernel", "gaussian"}, {"draw", "learned"}},
                 {{"features", 20}, {"kernel", "rfa"}, {"gate", true}, {"guard", "clamp"}}},
       .evidence = {
           {"gaussian-kernel", "W = 0 gives uniform attention; many features, the Gaussian kernel",
            conformance::rff_limits},
           {"rfa-gates", "a gate that keeps nothing gives v; one that keeps all, rfa without it",
            conformance::rfa_gates},
           {"trigonometric-rate", "the error decreases as m^-0.5", conformance::trigonometric_rate},
           {"phase-rate", "the same for cosines with a phase", conformance::phase_rate},
           {"trigonometric-large", "the error also decreases with m at larger norms",
            conformance::trigonometric_large}}});
}

}  // namespace longhand::attention

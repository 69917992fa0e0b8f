// Trigonometric random features. Rahimi & Recht 2007; Peng et al. 2021 (arXiv 2103.02143), eq. 4-5.
// With rows w_l of W (m, D) drawn from N(0, I) and ψ(x) = m^(-1/2) [cos W x, sin W x] (or
// (2/m)^(1/2) cos(W x + b)):  E ψ(x)·ψ(y) = exp(-|x - y|²/2). The kernels are
//
//   softmax:   exp(|x̂|²/2) ψ(x̂), x̂ = D^(-1/4) x:      exp(x̂·ŷ) = exp(x·y / sqrt(D))
//   gaussian:  ψ(x̂ / sigma):                          exp(-|x̂ - ŷ|² / (2 sigma²))
//   rfa:       ψ(s ∘ x/|x|), s (H, D) trained:        exp(-|s ∘ (x/|x| - y/|y|)|²/2), which for
//              equal s is softmax attention of unit vectors, since their norms cancel
//
// With `gate`, for rfa (RFA-GATE there): earlier tokens decay by g_i = σ(x_i·w + b) of the head,
// and the token itself has weight 1 - g_i: S_i = g_i S_(i-1) + (1 - g_i) φ(k_i) v_iᵀ; z alike.
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

class RffMap final : public TrigonometricMap {
 public:
  RffMap(const MapScope& scope, const RffOptions& options)
      : TrigonometricMap(scope, options.projection, options.has_phases(), options.guard),
        kernel_(options.kernel),
        scale_(kernel_ == "rfa" ? 1 : x_scale()) {
    const int64_t H = scope.config.heads, D = scope.config.head_dim;
    if (kernel_ == "gaussian") scale_ /= options.sigma;
    if (kernel_ == "rfa") sigma_.emplace(scope.scope("sigma"), Shape{H, D}, nn::init::ones());
    if (options.gate) {
      gate_.emplace(scope.scope("gate"), H * D, H);
      // Counted per token as query and per token as key, which share the gate.
      for (Work::Counts* const token : {&forward, &backward}) {
        token->flops += static_cast<double>(D * H);
        token->exponentials += 1;
      }
    }
  }

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return wave_features(prepared(q), prepared(k), scale_, kernel_ == "softmax");
  }
  Features gated(Features f, const Variable& x) const override {
    if (!gate_) return f;
    const Variable u = gate_->forward(x);  // (B, N, H)
    f.log_decay = softplus(u, -1, -1);
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

using namespace conformance;

void rff_limits(Findings& f) {
  const OptionSet options{{"features", 32}, {"kernel", "gaussian"}};
  const auto variant = make_variant("rff", options, made());
  set(*variant, {{"features", Tensor::zeros({32, D}, DType::f64)}});
  const Sample x;
  const double d = distance(forward(*variant, x),
                            broadcast_to(mean(Variable(x.v), {1}, true), x.v.shape()).value());
  f.expect(d <= 1e-12, "W = 0: the result differs from uniform attention by ", d);
  // Many features: the Gaussian kernel e^(-|q - k|² / (2 sqrt(D) sigma²)).
  const auto wide =
      make_variant("rff", extended(options, {{"features", 20000}, {"sigma", 2.0}}), made());
  const Tensor q = one(x.q, 0, N), k = one(x.k, 0, N), all = definitions::visible(N, N, {});
  const Variable expected = definitions::gaussian(Variable(q), Variable(k), all, 2);
  const double error =
      relative_error(weights(*wide, q, k), expected.value().select(0, 0).select(0, 0));
  f.measured("20,000 features and the Gaussian kernel: ", error);
  f.expect(error <= 0.02, "with 20,000 features the weights differ from the Gaussian kernel's by ",
           error);
}

// With an open gate, 1 - σ(b) for tiny σ(b), only the token itself counts; with one that is the
// same for all tokens and nearly closed, all tokens count alike, as without a gate.
void rfa_gates(Findings& f) {
  const OptionSet options{{"features", 32}, {"kernel", "rfa"}};
  const auto with = make_variant("rff", extended(options, {{"gate", true}}), made(true));
  const auto constant = [&](double bias) {
    set(*with, {{"gate.weight", Tensor::zeros({H, H * D}, DType::f64)},
                {"gate.bias", Tensor::full({H}, bias, DType::f64)}});
  };
  const Sample x;
  constant(-40);
  equal(f, "keeping nothing and v", forward(*with, x), x.v, 1e-9);
  constant(30);
  equal(f, "keeping all and no gate", *with, *make_variant("rff", options, made(true)), 1e-9);

  // Queries and keys of 0 have equal features, so that the gates g = σ(x·w + b) alone decide: sums
  // become g sum + (1 - g) v.
  set(*with, {{"gate.weight", normal({H, H * D}, 5)}, {"gate.bias", normal({H}, 6)}});
  const nn::StateDict state = with->state_dict();
  const Tensor tokens = normal({2, N, H * D}, 7), zero = Tensor::zeros(x.q.shape(), DType::f64);
  const Variable g = sigmoid(
      linear(Variable(tokens), Variable(state.at("gate.weight")), Variable(state.at("gate.bias"))));
  const Tensor found =
      with->forward({Variable(zero), Variable(zero), Variable(x.v), Variable(tokens)}, {}, {})
          .value();
  const Variable log_g = log(g), own_weight = unsqueeze(1 - g, 3),
                 ones(Tensor::full({2, N, H, 1}, 1, DType::f64)),
                 W = definitions::retention(ones, own_weight, log_g);
  const Variable means = definitions::apply(W, Variable(x.v)) / definitions::apply(W, ones);
  equal(f, "gated means", found, means.value(), 1e-9);
}

void trigonometric_rate(Findings& f) { rate(f, "rff", {{"draw", "iid"}}); }
void phase_rate(Findings& f) { rate(f, "rff", {{"draw", "iid"}, {"waves", "cos_bias"}}); }

// At larger norms signed features have small normalisers and large errors, which must still
// decrease.
void trigonometric_large(Findings& f) {
  const Case c = small_case(0.5, 51);
  const double few = attention_error("rff", {}, 256, c), many = attention_error("rff", {}, 4096, c);
  f.measured("error ", few, " at 256 features, ", many, " at 4096");
  f.expect(many < few / 2, "expected 16 times the features to halve the error of ", few, ", got ",
           many);
}

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
       .evidence = {{"gaussian-kernel",
                     "W = 0 gives uniform attention; many features, the Gaussian kernel",
                     rff_limits},
                    {"rfa-gates",
                     "a gate that keeps nothing gives v; one that keeps all, rfa without it",
                     rfa_gates},
                    {"trigonometric-rate", "the error decreases as m^-0.5", trigonometric_rate},
                    {"phase-rate", "the same for cosines with a phase", phase_rate},
                    {"trigonometric-large", "the error also decreases with m at larger norms",
                     trigonometric_large}},
       .rate = -0.5});
}

}  // namespace longhand::attention

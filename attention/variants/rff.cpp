// Trigonometric random features. Rahimi & Recht 2007; Peng et al. 2021 (arXiv 2103.02143), eq. 4-5.
// With rows w_l of W (m, D) drawn from N(0, I) and ψ(x) = m^(-1/2) [cos W x, sin W x] (or
// (2/m)^(1/2) cos(W x + b)):  E ψ(x)·ψ(y) = exp(-|x - y|²/2). Of that,
//
//   softmax:   exp(|x̂|²/2) ψ(x̂), x̂ = D^(-1/4) x:      exp(x̂·ŷ) = exp(x·y / sqrt(D))
//   gaussian:  ψ(x̂ / sigma):                          exp(-|x̂ - ŷ|² / (2 sigma²))
//   rfa:       ψ(s ∘ x/|x|), s (H, D) trained:        exp(-|s ∘ (x/|x| - y/|y|)|²/2), which for
//              equal s is softmax attention of unit vectors, as their norms cancel
//
// Constants that cancel in num / den are left out: exp(|q̂|²/2) and m^(-1/2); of the keys exp(|k̂|²/2
// - max |k̂|²/2) stays, the maximum over real tokens (causal: those so far). Features have signs, so
// den may come near 0 or below and the result be far off: that is this method. Such normalisers are
// counted, and a guard can be chosen.
#include <cmath>

#include "longhand/attention/bases/dropout_option.h"
#include "longhand/attention/bases/random_features.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

bool read_bias(const Options& options) {
  return options.get_choice("waves", "sin_cos", {"sin_cos", "cos_bias"}) == "cos_bias";
}

class Rff final : public RandomFeatureAttention {
 public:
  Rff(const nn::Scope& scope_, const Config& config)
      : RandomFeatureAttention(scope_, config, read_bias(config.options)),
        kernel_(config.options.get_choice("kernel", "softmax", {"softmax", "gaussian", "rfa"})) {
    refuse_dropout(config, "rff");
    const double D = static_cast<double>(config.head_dim);
    scale_ = kernel_ == "rfa" ? 1 : std::pow(D, -0.25);
    if (kernel_ == "gaussian") scale_ /= config.options.get_double("sigma", 1, 1e-6, 1e6);
    if (kernel_ == "rfa")
      sigma_.emplace(scope("sigma"), Shape{config.heads, config.head_dim}, nn::init::ones());
    const bool biased = read_bias(config.options);
    const double m = static_cast<double>(features_count());
    set_cost(biased ? features_count() : 2 * features_count(), m * (2 * D + 20));
    read_guard(biased ? m / 2 : m);  // cos² + sin² = 1 of each w; cos² is 1/2 in the mean

    Traits& traits = mutable_traits();
    if (kernel_ == "gaussian")
      traits.summary = "kernel attention with random Fourier features of a Gaussian kernel";
    if (kernel_ == "rfa")
      traits.summary = "random feature attention: unit queries and keys, trained bandwidths";
    if (biased) traits.state += ", phases";
  }

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const Variable wq = waves(project(prepared(q), scale_), phases());
    const Variable wk = waves(project(prepared(k), scale_), phases());
    if (kernel_ != "softmax") return {wq, wk};
    return {wq, wk, false, half_square(k, scale_)};
  }

 private:
  // x/|x| (0 stays 0), times the trained bandwidths.
  Variable prepared(const Variable& x) const {
    if (kernel_ != "rfa") return x;
    const double root = std::sqrt(static_cast<double>(x.size(3)));
    return affine(rms_norm(x, {}, 1e-12), 1 / root) * *sigma_;
  }

  std::string kernel_;
  double scale_ = 1;
  std::optional<nn::Parameter> sigma_;  // (H, D), s above: of frequencies, 1 / a bandwidth
};

}  // namespace

Registration rff_variant() {
  return {{.summary = "kernel attention with sines and cosines of random projections",
           .random = true,
           .signed_weights = true,
           .causal = true,
           .decodes = true,
           .time = "N m D",
           .memory = "N m",
           .state = "features, redraws, steps, random_state, nonpositive_normalizers",
           .paper = "Rahimi & Recht 2007; Peng et al. 2021, arXiv 2103.02143"},
          [](const nn::Scope& scope, const Config& config) -> std::unique_ptr<Variant> {
            return std::make_unique<Rff>(scope, config);
          },
          {{{"features", 20}},
           {{"features", 20}, {"kernel", "gaussian"}, {"sigma", 1.5}, {"guard", "add"}},
           {{"features", 20}, {"kernel", "rfa"}, {"guard", "clamp"}, {"heads", "per_head"}},
           {{"features", 20}, {"kernel", "gaussian"}, {"waves", "cos_bias"}, {"draw", "iid"}}}};
}

}  // namespace longhand::attention

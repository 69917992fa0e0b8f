// Trigonometric features of the softmax kernel. Choromanski et al. 2020 (arXiv 2009.14794); Rahimi & Recht 2007:
// with x̂ = D^(-1/4) x and rows w_l of W,
//
//   φ(x) = exp(|x̂|²/2) [cos W x̂, sin W x̂]   or   exp(|x̂|²/2) cos(W x̂ + b)
//
// They are signed, so normalisers may be near 0.
#include "longhand/attention/features/random_features.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

class TrigonometricMap final : public RandomFeatureMap {
 public:
  TrigonometricMap(const MapScope& scope, const RandomFeatureOptions& options, Waves waves,
                   const GuardOptions& guard_options)
      : RandomFeatureMap(scope, options, waves == Waves::phase, waves == Waves::phase ? 1 : 2,
                         waves == Waves::phase ? 1 : 2) {
    // cos² + sin² = 1 for each w; cos² is 1/2 on average
    const auto m = static_cast<double>(options.features);
    guard = guard_options.of(waves == Waves::phase ? m / 2 : m);
  }

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return wave_features(q, k, x_scale(), true);
  }
};

}  // namespace

std::unique_ptr<RandomFeatureMap> trigonometric_map(const MapScope& scope,
                                                    const RandomFeatureOptions& options,
                                                    Waves waves, const GuardOptions& guard) {
  return std::make_unique<TrigonometricMap>(scope, options, waves, guard);
}

}  // namespace longhand::attention

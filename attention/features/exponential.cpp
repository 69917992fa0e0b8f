// Positive features of the softmax kernel. Choromanski et al. 2020 (arXiv 2009.14794), eq. 5 and 6:
// with x̂ = D^(-1/4) x and rows w_l of W,
//
//   φ(x)_l = exp(w_l·x̂ - |x̂|²/2),   hyperbolic: also exp(-w_l·x̂ - |x̂|²/2)
//
// The norm is common to all features of a query and may be dropped there; without it in keys, φ
// belongs to another kernel. Stored as logarithms, computed tile by tile unless W is learned.
#include "longhand/attention/features/random_features.h"

namespace longhand::attention {
namespace {

class ExponentialMap final : public RandomFeatureMap {
 public:
  ExponentialMap(const MapScope& scope, const RandomFeatureOptions& options, bool both, bool norm,
                 bool absolute)
      : RandomFeatureMap(scope, options, false, both ? 2 : 1, both ? 2 : 1),
        both_(both),
        norm_(norm),
        absolute_(absolute) {}

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const double scale = x_scale();
    if (learned()) {
      const Variable uq = exponents(project(q, scale), both_),
                     uk = exponents(project(k, scale), both_);
      return {absolute_ ? uq - half_square(q, scale) : uq,
              norm_ ? uk - half_square(k, scale) : uk,
              {.exponentials = true}};
    }
    Variable W = projection(scale);
    if (both_) W = concat({W, -W}, -2);
    const double half_norm = norm_ ? scale * scale / 2 : 0;
    return {q, k, {.exponentials = true, .projection = W.value(), .half_norm = half_norm}};
  }

 private:
  bool both_, norm_, absolute_;
};

}  // namespace

std::unique_ptr<RandomFeatureMap> exponential_map(const MapScope& scope,
                                                  const RandomFeatureOptions& options, bool both,
                                                  bool norm, bool absolute) {
  return std::make_unique<ExponentialMap>(scope, options, both, norm, absolute);
}

}  // namespace longhand::attention

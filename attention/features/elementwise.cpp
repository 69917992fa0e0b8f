// Elementwise functions of a projection: kernels other than softmax ("generalised attention").
// Choromanski et al. 2020 (arXiv 2009.14794): with x̂ = D^(-1/4) x,
//
//   φ(x)_l = f(w_l·x̂) + eps,   f: relu, gelu, square or exp
//
// exp is stored as logarithms, and if eps = 0 computed like exponential features (exponential.cpp).
#include <cmath>

#include "longhand/attention/features/random_features.h"

namespace longhand::attention {
namespace {

// Returns log(e^x + eps) for eps > 0, without overflow of e^x.
Variable log_plus(const Variable& x, double eps) {
  const Variable d = x - std::log(eps), positive = relu(d);
  return positive + log(exp(d - 2 * positive) + 1) + std::log(eps);
}

class ElementwiseMap final : public RandomFeatureMap {
 public:
  ElementwiseMap(const MapScope& scope, const RandomFeatureOptions& options, const std::string& f,
                 double eps, const GuardOptions& guard_options)
      : RandomFeatureMap(scope, options, false, 1, f == "relu" || f == "square" ? 0 : 1),
        f_(f),
        eps_(eps) {
    if (f == "gelu") guard = guard_options.of(static_cast<double>(options.features), false);
  }

  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const Variable uq = project(q, x_scale()), uk = project(k, x_scale());  // (B, N, H, m)
    if (f_ == "exp") return {log_plus(uq, eps_), log_plus(uk, eps_), {.exponentials = true}};
    return {map(uq), map(uk)};
  }

 private:
  Variable map(const Variable& u) const {
    const Variable f = f_ == "relu" ? relu(u) : f_ == "gelu" ? gelu(u) : square(u);
    return eps_ > 0 ? f + eps_ : f;
  }

  std::string f_;
  double eps_;
};

}  // namespace

std::unique_ptr<RandomFeatureMap> elementwise_map(const MapScope& scope,
                                                  const RandomFeatureOptions& options,
                                                  const std::string& f, double eps,
                                                  const GuardOptions& guard) {
  return std::make_unique<ElementwiseMap>(scope, options, f, eps, guard);
}

}  // namespace longhand::attention

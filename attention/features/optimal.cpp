// Softmax kernel features with least variance. Likhosherstov et al. 2022 (arXiv 2205.15317), eq. 9:
//
//   φ(x)_l = exp(A |w_l|² + (1 - 4A)^(1/2) w_l·x̂ - |x̂|²/2),   x̂ = D^(-1/4) x
//
// with A <= 0: bounded if A < 0 and unbiased for every A.
#include <cmath>

#include "longhand/attention/features/random_features.h"

namespace longhand::attention {
namespace {

class OptimalMap final : public RandomFeatureMap {
 public:
  // |q̂ + k̂|² for elements of that standard deviation.
  OptimalMap(const MapScope& scope, const RandomFeatureOptions& options, double spread)
      : RandomFeatureMap(scope, options, false, 1, 1),
        A_(optimal_coefficient(
            scope.config.head_dim,
            2 * spread * spread * std::sqrt(static_cast<double>(scope.config.head_dim)))) {}

  // A |w|² enters as the weight of an additional element of q and k, which is 1. Its square in the
  // norm of keys is a factor common to all keys.
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const double scale = x_scale();
    const Variable W = projection(1), offsets = A_ * sum(square(W), {-1}, true);
    const double root = std::sqrt(1 - 4 * A_);
    if (learned()) {
      const Variable row = squeeze(offsets, -1);
      return {project(q, root * scale) + row,
              project(k, root * scale) + row - half_square(k, scale),
              {.exponentials = true}};
    }
    const auto with_one = [](const Variable& x) {
      Shape shape = x.shape();
      shape[3] = 1;
      return concat({x, Variable(Tensor::full(shape, 1, x.dtype()))}, 3);
    };
    return {with_one(q),
            with_one(k),
            {.exponentials = true,
             .projection = concat({root * scale * W, offsets}, -1).value(),
             .half_norm = scale * scale / 2}};
  }

 private:
  double A_;
};

}  // namespace

double optimal_coefficient(int64_t dim, double square) {
  // With u = 1 - 8A, the derivative of the variance is 0 where D u² - (D + 2 z²) u - 2 z² = 0.
  const double d = static_cast<double>(dim), b = d + 2 * square;
  return (1 - (b + std::sqrt(b * b + 8 * d * square)) / (2 * d)) / 8;
}

std::unique_ptr<RandomFeatureMap> optimal_map(const MapScope& scope,
                                              const RandomFeatureOptions& options, double spread) {
  return std::make_unique<OptimalMap>(scope, options, spread);
}

}  // namespace longhand::attention

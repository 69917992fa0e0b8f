// φ(q)·φ(k) = (q'·k')²/2, x' = γ ∘ (x - mean x) / sqrt(var x + 1e-5) + β, with γ and β (D) learned
// per head for queries and for keys. Aksenov et al. 2024 (arXiv 2402.10644). The features hold the
// upper triangle of x' x'ᵀ, with its diagonal divided by sqrt(2).
#include "longhand/attention/features/kinds.h"
#include "longhand/attention/ops/products.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

// γ ∘ norm(x) + β, for x (B, N, H, D).
struct Affine {
  Affine(const MapScope& scope, const std::string& of)
      : scale(scope.scope(of + "_scale"), shape(scope.config), nn::init::ones()),
        shift(scope.scope(of + "_shift"), shape(scope.config), nn::init::zeros()) {}
  static Shape shape(const Config& config) { return {config.heads, config.head_dim}; }
  Variable operator()(const Variable& x) const { return layer_norm(x, {}, {}) * scale + shift; }

  nn::Parameter scale, shift;  // (H, D): γ and β
};

class RebasedMap final : public FeatureMap {
 public:
  RebasedMap(const MapScope& scope, const MapKindOptions&)
      : query_(scope, "query"), key_(scope, "key") {
    const int64_t D = scope.config.head_dim;
    count = D * (D + 1) / 2;
    forward = {2 * static_cast<double>(count), 0};
    backward = {4 * static_cast<double>(count), 0};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return {quadratic_products(query_(q), false), quadratic_products(key_(k), false)};
  }

 private:
  Affine query_, key_;
};

}  // namespace

constinit const MapKind rebased_map{.name = "rebased",
                                    .make = make_map<RebasedMap>,
                                    .may_vanish = true,
                                    .time = "N D^3",
                                    .memory = "N D^2"};

}  // namespace longhand::attention

// φ(q)·φ(k) = (q'·k')²/2, x' = γ ∘ (x - mean x) / sqrt(var x + 1e-5) + β, γ and β (D) learned, per head, for
// queries and for keys. Aksenov et al. 2024 (arXiv 2402.10644). The features hold the upper triangle of x' x'ᵀ,
// with its diagonal divided by sqrt(2).
#include "longhand/attention/features/kinds.h"
#include "longhand/attention/ops/products.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

// γ ∘ norm(x) + β, for x (B, N, H, D).
struct Affine {
  Affine(const nn::Scope& of_scale, const nn::Scope& of_shift, const Shape& shape)
      : scale(of_scale, shape, nn::init::ones()), shift(of_shift, shape, nn::init::zeros()) {}
  Variable operator()(const Variable& x) const { return layer_norm(x, {}, {}) * scale + shift; }

  nn::Parameter scale, shift;  // (H, D): γ and β
};

class RebasedMap final : public FeatureMap {
 public:
  RebasedMap(const MapScope& scope, int64_t H, int64_t D)
      : query_(scope.scope("query_scale"), scope.scope("query_shift"), Shape{H, D}),
        key_(scope.scope("key_scale"), scope.scope("key_shift"), Shape{H, D}) {
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

constinit const MapKind rebased_map{
    .name = "rebased",
    .count = [](int64_t D, const MapKindOptions&) { return D * (D + 1) / 2; },
    .make = [](const MapScope& scope, const MapKindOptions&) -> std::unique_ptr<FeatureMap> {
      return std::make_unique<RebasedMap>(scope, scope.config.heads, scope.config.head_dim);
    },
    .may_vanish = true,
    .time = "N D^3",
    .memory = "N D^2"};

}  // namespace longhand::attention

// The Taylor expansion of e^s, s = q·k / sqrt(D): φ(q)·φ(k) = 1 + s + s²/2, at least 1/2. Arora et al. 2024,
// "Based" (arXiv 2402.18668). The features hold only the upper triangle of x xᵀ, with its diagonal divided
// by sqrt(2).
#include <cmath>

#include "longhand/attention/features/kinds.h"
#include "longhand/attention/ops/products.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

int64_t features_of(int64_t D, const MapKindOptions&) { return 1 + D + D * (D + 1) / 2; }

class Taylor2Map final : public FeatureMap {
 public:
  explicit Taylor2Map(int64_t D) {
    count = features_of(D, {});
    forward = {2 * static_cast<double>(count), 0};
    backward = {4 * static_cast<double>(count), 0};
    may_underflow = false;
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const double scale = std::pow(static_cast<double>(q.size(3)), -0.25);
    return {quadratic_products(scale * q, true), quadratic_products(scale * k, true)};
  }
};

}  // namespace

constinit const MapKind taylor2_map{
    .name = "taylor2",
    .count = features_of,
    .make = [](const MapScope& scope, const MapKindOptions&) -> std::unique_ptr<FeatureMap> {
      return std::make_unique<Taylor2Map>(scope.config.head_dim);
    },
    .may_underflow = false,
    .time = "N D^3",
    .memory = "N D^2"};

}  // namespace longhand::attention

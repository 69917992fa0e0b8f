// The Taylor expansion of e^s, s = q·k / sqrt(D): φ(q)·φ(k) = 1 + s + s²/2, at least 1/2. Arora et al. 2024,
// "Based" (arXiv 2402.18668). The features hold only the upper triangle of x xᵀ, with its diagonal divided
// by sqrt(2).
#include <cmath>

#include "longhand/attention/features/kinds.h"
#include "longhand/attention/ops/products.h"

namespace longhand::attention {
namespace {

class Taylor2Map final : public FeatureMap {
 public:
  Taylor2Map(const MapScope& scope, const MapKindOptions&) {
    const int64_t D = scope.config.head_dim;
    count = 1 + D + D * (D + 1) / 2;
    forward = {2 * static_cast<double>(count), 0};
    backward = {4 * static_cast<double>(count), 0};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const double scale = std::pow(static_cast<double>(q.size(3)), -0.25);
    return {quadratic_products(scale * q, true), quadratic_products(scale * k, true)};
  }
};

}  // namespace

constinit const MapKind taylor2_map{.name = "taylor2",
                                    .make = make_map<Taylor2Map>,
                                    .may_underflow = false,
                                    .time = "N D^3",
                                    .memory = "N D^2"};

}  // namespace longhand::attention

// max(W x + b, 0), W (m, D) and b learned, per head, the same for queries and keys. Kasai et al. 2021 (arXiv
// 2103.13076), eq. 4.
#include "longhand/attention/features/kinds.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

class T2rMap final : public FeatureMap {
 public:
  T2rMap(const MapScope& scope, int64_t H, int64_t m, int64_t D)
      : weight_(scope.scope("weight"), Shape{H, m, D}, nn::init::xavier_uniform()),
        bias_(scope.scope("bias"), Shape{H, m}, nn::init::zeros()) {
    const auto products = static_cast<double>(m) * static_cast<double>(D);
    count = m;
    forward = {2 * products, 0};
    backward = {4 * products, 0};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    const auto learned = [&](const Variable& x) {
      return relu(linear_of_heads(x, weight_) + bias_);
    };
    return {learned(q), learned(k)};
  }

 private:
  nn::Parameter weight_, bias_;  // (H, m, D) and (H, m)
};

}  // namespace

constinit const MapKind t2r_map{
    .name = "t2r",
    .count = [](int64_t, const MapKindOptions& options) { return options.features; },
    .make = [](const MapScope& scope,
               const MapKindOptions& options) -> std::unique_ptr<FeatureMap> {
      return std::make_unique<T2rMap>(scope, scope.config.heads, options.features,
                                      scope.config.head_dim);
    },
    .may_vanish = true,
    .time = "N m D",
    .memory = "m D"};

}  // namespace longhand::attention

// max(W x + b, 0), with W (m, D) and b learned per head and shared by queries and keys. Kasai et
// al. 2021 (arXiv 2103.13076), eq. 4.
#include "longhand/attention/features/kinds.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

class T2rMap final : public FeatureMap {
 public:
  T2rMap(const MapScope& scope, const MapKindOptions& options)
      : weight_(scope.scope("weight"),
                Shape{scope.config.heads, options.features, scope.config.head_dim},
                nn::init::xavier_uniform()),
        bias_(scope.scope("bias"), Shape{scope.config.heads, options.features}, nn::init::zeros()) {
    count = options.features;
    const auto products = static_cast<double>(count * scope.config.head_dim);
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
    .name = "t2r", .make = make_map<T2rMap>, .may_vanish = true, .time = "N m D", .memory = "m D"};

}  // namespace longhand::attention

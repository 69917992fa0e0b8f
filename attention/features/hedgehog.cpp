// softmax([A x, -A x]), with A (D, D) learned per head, separately for queries and keys, and
// initialised to the identity. Zhang et al. 2024 (arXiv 2402.04347).
#include "longhand/attention/features/kinds.h"

namespace longhand::attention {
namespace {

void identity(Tensor& w, const Generator&) {  // (H, D, D)
  const int64_t H = w.size(0), D = w.size(1);
  w.fill(0);
  w.reshape({H, D * D}).slice(1, 0, D * D, D + 1).fill(1);
}

class HedgehogMap final : public FeatureMap {
 public:
  HedgehogMap(const MapScope& scope, const MapKindOptions&)
      : query_(scope.scope("query_map"), shape(scope.config), identity),
        key_(scope.scope("key_map"), shape(scope.config), identity) {
    const auto d = static_cast<double>(scope.config.head_dim);
    count = 2 * scope.config.head_dim;
    forward = {2 * d * d, 2 * d};
    backward = {4 * d * d, 2 * d};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    // The query's normaliser cancels.
    const Variable uq = linear_of_heads(q, query_), uk = linear_of_heads(k, key_);
    return {concat({uq, -uq}, 3), log_softmax(concat({uk, -uk}, 3)), {.exponentials = true}};
  }

 private:
  static Shape shape(const Config& config) {
    return {config.heads, config.head_dim, config.head_dim};
  }

  nn::Parameter query_, key_;  // (H, D, D)
};

}  // namespace

constinit const MapKind hedgehog_map{.name = "hedgehog", .make = make_map<HedgehogMap>};

}  // namespace longhand::attention

// r_i r_(i+j) for all i and j = 1, …, nu, r = [max(x, 0), max(-x, 0)]; indices wrap around. Schlag
// et al. 2021 (arXiv 2102.11174), eq. 37-38.
#include "longhand/attention/features/kinds.h"
#include "longhand/attention/ops/products.h"

namespace longhand::attention {
namespace {

class DpfpMap final : public FeatureMap {
 public:
  DpfpMap(const MapScope& scope, const MapKindOptions& options) : nu_(options.nu) {
    count = 2 * scope.config.head_dim * nu_;
    forward = {static_cast<double>(count), 0};
    backward = {4 * static_cast<double>(count), 0};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    return {shifted_products(q, nu_), shifted_products(k, nu_)};
  }

 private:
  int64_t nu_;
};

}  // namespace

constinit const MapKind dpfp_map{.name = "dpfp",
                                 .make = make_map<DpfpMap>,
                                 .may_vanish = true,
                                 .time = "N nu D^2",
                                 .memory = "nu D^2"};

}  // namespace longhand::attention

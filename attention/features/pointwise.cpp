// Kernels of functions of single elements. Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 7:
//
//   elu1          elu(x) + 1
//   relu          max(x, 0)
//   squared_relu  max(x, 0)²
//   exp           e^x, computed tile by tile
#include <type_traits>

#include "longhand/attention/features/kinds.h"

namespace longhand::attention {
namespace {

// f for each element; nullptr: exp.
template <auto f, int exponentials>
class PointwiseMap final : public FeatureMap {
 public:
  PointwiseMap(const MapScope& scope, const MapKindOptions&) {
    count = scope.config.head_dim;
    forward = backward = {0, static_cast<double>(exponentials * count)};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    if constexpr (std::is_null_pointer_v<decltype(f)>)
      return {q, k, {.exponentials = true}};
    else
      return {f(q), f(k)};
  }
};

Variable squared_relu(const Variable& x) { return square(relu(x)); }

}  // namespace

constinit const MapKind elu1_map{.name = "elu1", .make = make_map<PointwiseMap<elu_plus_one, 1>>};
constinit const MapKind relu_map{
    .name = "relu", .make = make_map<PointwiseMap<relu, 0>>, .may_vanish = true};
constinit const MapKind squared_relu_map{
    .name = "squared_relu", .make = make_map<PointwiseMap<squared_relu, 0>>, .may_vanish = true};
constinit const MapKind exp_map{.name = "exp", .make = make_map<PointwiseMap<nullptr, 1>>};

}  // namespace longhand::attention

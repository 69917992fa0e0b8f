// Kernels of functions of single entries. Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 7:
//
//   elu1          elu(x) + 1
//   relu          max(x, 0)
//   squared_relu  max(x, 0)²
//   exp           e^x, computed tile by tile
#include "longhand/attention/features/kinds.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {
namespace {

class PointwiseMap final : public FeatureMap {
 public:
  PointwiseMap(int64_t D, double exponentials, Variable (*f)(const Variable&)) : f_(f) {
    count = D;
    forward = backward = {0, exponentials * static_cast<double>(D)};
  }
  Features features(const Variable& q, const Variable& k, int64_t) const override {
    if (!f_) return {q, k, true};
    return {f_(q), f_(k)};
  }

 private:
  Variable (*f_)(const Variable&);  // null: exp
};

int64_t of_width(int64_t D, const MapKindOptions&) { return D; }

template <Variable (*f)(const Variable&), int exponentials>
std::unique_ptr<FeatureMap> make(const MapScope& scope, const MapKindOptions&) {
  return std::make_unique<PointwiseMap>(scope.config.head_dim, exponentials, f);
}

Variable squared_relu(const Variable& x) { return square(relu(x)); }

}  // namespace

constinit const MapKind elu1_map{.name = "elu1", .count = of_width, .make = make<elu_plus_one, 1>};
constinit const MapKind relu_map{
    .name = "relu", .count = of_width, .make = make<relu, 0>, .may_vanish = true};
constinit const MapKind squared_relu_map{
    .name = "squared_relu", .count = of_width, .make = make<squared_relu, 0>, .may_vanish = true};
constinit const MapKind exp_map{.name = "exp", .count = of_width, .make = make<nullptr, 1>};

}  // namespace longhand::attention

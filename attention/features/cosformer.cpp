// Rotated rectified features: max(x, 0) ⊗ [cos, sin](π i / 2M), i = 1, 2, …, M = max_length, with
// weights relu(q_i)·relu(k_j) cos(π (i - j) / 2M). Qin et al. 2022 (arXiv 2202.08791).
#include <cmath>
#include <numbers>

#include "longhand/attention/features/kinds.h"

namespace longhand::attention {
namespace {

class CosformerMap final : public FeatureMap {
 public:
  CosformerMap(const MapScope& scope, const MapKindOptions&) : config_(scope.config) {
    count = 2 * config_.head_dim;
    forward = backward = {static_cast<double>(count), 0};
  }
  Features features(const Variable& q, const Variable& k, int64_t position) const override {
    return {with_positions(q, position), with_positions(k, position)};
  }

 private:
  // (B, N, H, 2D) for x (B, N, H, D) with the first token at `position`.
  Variable with_positions(const Variable& x, int64_t position) const {
    const int64_t N = x.size(1), M = config_.max_length;
    check<ShapeError>(position + N <= M, "cosformer: expected at most max_length = ", M,
                      " tokens, got ", position + N);
    const auto table = [&](auto f) {
      Tensor values = Tensor::empty({1, N, 1, 1}, DType::f64);
      for (int64_t i = 0; i < N; ++i)
        values.data<double>()[i] = f(std::numbers::pi * static_cast<double>(position + i + 1) /
                                     (2 * static_cast<double>(M)));
      return Variable(values.to(x.dtype()));
    };
    const Variable y = relu(x);
    return concat({y * table([](double a) { return std::cos(a); }),
                   y * table([](double a) { return std::sin(a); })},
                  3);
  }

  const Config& config_;
};

}  // namespace

constinit const MapKind cosformer_map{
    .name = "cosformer", .make = make_map<CosformerMap>, .may_vanish = true, .by_position = true};

}  // namespace longhand::attention

#include "longhand/attention/random_features.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/linalg.h"

namespace longhand::attention {
namespace {

Tensor state_of(const Generator& generator) {
  const Generator::State state = generator.state();
  return Tensor::from(
      std::vector<int64_t>{static_cast<int64_t>(state.key), static_cast<int64_t>(state.stream)},
      {2});
}

}  // namespace

Tensor draw_gaussian(const Generator& generator, int64_t features, int64_t dim) {
  Tensor w = Tensor::empty({features, dim}, DType::f64);
  fill_normal(w, generator);
  return w;
}

Tensor draw_orthogonal(const Generator& generator, int64_t features, int64_t dim) {
  Tensor w = Tensor::empty({features, dim}, DType::f64);
  double* out = w.data<double>();
  const Tensor lengths = draw_gaussian(generator.fork("norm"), features, dim);
  const double* g = lengths.data<double>();
  Tensor q;
  for (int64_t row = 0; row < features; ++row, out += dim, g += dim) {
    if (row % dim == 0) q = qr(draw_gaussian(generator.fork("block").fork(row / dim), dim, dim)).q;
    double square = 0;
    for (int64_t d = 0; d < dim; ++d) square += g[d] * g[d];
    for (int64_t d = 0; d < dim; ++d) out[d] = std::sqrt(square) * q.at({d, row % dim});
  }
  return w;
}

RandomFeatureVariant::RandomFeatureVariant(const nn::Scope& scope_, const Config& config)
    : Variant(scope_, config),
      features_count_(config.options.get_int("features", 256, 1, 1 << 20)),
      orthogonal_(config.options.get_choice("draw", "orthogonal", {"orthogonal", "iid"}) ==
                  "orthogonal"),
      redraw_interval_(config.options.get_int("redraw_interval", 1000, 0)),
      random_state_(scope("random_state"), state_of(init_random().fork("features"))),
      redraws_(scope("redraws"), Tensor::zeros({}, DType::i64)),
      steps_(scope("steps"), Tensor::zeros({}, DType::i64)),
      features_(scope("features"), draw()) {}

Tensor RandomFeatureVariant::draw() const {
  const int64_t* const state = random_state_.value().data<int64_t>();
  const auto redraws = static_cast<uint64_t>(*redraws_.value().data<int64_t>());
  const Generator generator =
      Generator::from_state({static_cast<uint64_t>(state[0]), static_cast<uint64_t>(state[1])})
          .fork(redraws);
  const auto how = orthogonal_ ? draw_orthogonal : draw_gaussian;
  return how(generator, features_count_, config().head_dim).to(parameter_dtype());
}

void RandomFeatureVariant::on_step() {
  const int64_t step = ++*steps_.mutable_value().data<int64_t>();
  if (redraw_interval_ == 0 || step % redraw_interval_ != 0) return;
  ++*redraws_.mutable_value().data<int64_t>();
  copy_into(features_.mutable_value(), draw());
}

Variable RandomFeatureVariant::projection() const {
  return affine(Variable(features_.value()),
                std::pow(static_cast<double>(config().head_dim), -0.25));
}

Variable RandomFeatureVariant::half_square(const Variable& x) {
  return affine(sum(square(x), {3}, true), 0.5 / std::sqrt(static_cast<double>(x.size(3))));
}

}  // namespace longhand::attention

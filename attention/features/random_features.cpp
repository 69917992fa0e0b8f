#include "longhand/attention/features/random_features.h"

#include <cmath>
#include <numbers>

#include "longhand/core/linalg.h"

namespace longhand::attention {
namespace {

// Rows of the given norms from unit vectors: block(generator) returns (dim, dim), `dim` vectors.
template <class F>
Tensor rows_of_blocks(const Generator& generator, int64_t features, int64_t dim, RowNorm norm,
                      F block) {
  Tensor w = Tensor::empty({features, dim}, DType::f64);
  const Tensor lengths = draw_gaussian(generator.fork("norm"), features, dim, norm);
  const double* g = lengths.data<double>();
  double* out = w.data<double>();
  Tensor unit;
  for (int64_t row = 0; row < features; ++row, out += dim, g += dim) {
    if (row % dim == 0) unit = block(generator.fork("block").fork(row / dim));
    double square = 0;
    for (int64_t d = 0; d < dim; ++d) square += g[d] * g[d];
    for (int64_t d = 0; d < dim; ++d) out[d] = std::sqrt(square) * unit.at({row % dim, d});
  }
  return w;
}

// (dim, dim), orthogonal.
Tensor random_rotations(const Generator& generator, int64_t dim) {
  Tensor q = Tensor::zeros({dim, dim}, DType::f64);
  double* const p = q.data<double>();
  RandomStream random(generator);
  for (int64_t i = 0; i < dim; ++i) p[i * dim + i] = random.bits() & 1 ? 1 : -1;
  // Each rotation multiplies the distance of E q_ij² from 1/D by 1 - 1/(D - 1). After D ln D
  // rotations E q_ii² is still up to 2/D, which biases estimates; after 3 D ln D it is 1/D + D^-3.
  const auto rotations =
      3 * dim * static_cast<int64_t>(std::ceil(std::log(static_cast<double>(dim))));
  for (int64_t r = 0; r < rotations; ++r) {  // of columns i and j
    const auto i = static_cast<int64_t>(random.below(dim));
    const auto j = (i + 1 + static_cast<int64_t>(random.below(dim - 1))) % dim;
    const double angle = 2 * std::numbers::pi * random.uniform();
    const double c = std::cos(angle), s = std::sin(angle);
    for (int64_t row = 0; row < dim; ++row) {
      double &a = p[row * dim + i], &b = p[row * dim + j];
      const double rotated = c * a - s * b;
      b = s * a + c * b;
      a = rotated;
    }
  }
  return q;
}

}  // namespace

Tensor draw_gaussian(const Generator& generator, int64_t features, int64_t dim, RowNorm norm) {
  Tensor w = Tensor::empty({features, dim}, DType::f64);
  fill_normal(w, generator);
  if (norm == RowNorm::chi) return w;
  return rms_norm(Variable(w), {}, 0).value();  // mean square 1: the norm is sqrt(D)
}

Tensor draw_orthogonal(const Generator& generator, int64_t features, int64_t dim, RowNorm norm) {
  return rows_of_blocks(generator, features, dim, norm, [dim](const Generator& block) {
    return qr(draw_gaussian(block, dim, dim)).q.transpose(0, 1);
  });
}

Tensor draw_givens(const Generator& generator, int64_t features, int64_t dim, RowNorm norm) {
  return rows_of_blocks(generator, features, dim, norm,
                        [dim](const Generator& block) { return random_rotations(block, dim); });
}

Variable exponents(const Variable& u, bool both) { return both ? concat({u, -u}, -1) : u; }

Variable waves(const Variable& u, const Tensor& phases) {
  if (!phases.defined()) return cos_sin(u);
  return slice(cos_sin(u + Variable(phases)), -1, 0, u.size(-1));
}

std::string RandomFeatureOptions::state(bool with_phases) const {
  return std::string(learned() ? "" : "features, redraws, steps, random_state, ") +
         "nonpositive_normalizers" + (with_phases ? ", phases" : "");
}

void RandomFeatureOptions::describe(OptionVisitor& v) {
  v.integer("features", features, {1, 1 << 20}, "number of random features m");
  v.choice("draw", draw, {"orthogonal", "iid", "givens", "learned"},
           "how the rows of the projection are drawn: orthogonal in blocks of D, independent, or "
           "as products of random rotations; learned: they are trained, from orthogonal ones");
  v.choice("norm", norm, {"chi", "sqrt_d"},
           "norms of the rows: those of Gaussian vectors, or sqrt(D) for all");
  v.choice("heads", heads, {"shared", "per_head"},
           "one projection shared by all heads, or one per head");
  v.when(!learned(), "a draw that is not learned", [&] {
    v.integer("redraw_interval", redraw_interval, {0}, "optimizer steps between redraws; 0: never");
  });
}

RandomFeatureMap::RandomFeatureMap(const MapScope& scope, const RandomFeatureOptions& options,
                                   bool with_phases, int64_t columns, int64_t exponentials)
    : config_(scope.config), dtype_(scope.dtype), options_(options) {
  const double flops = 2 * static_cast<double>(options.features * config_.head_dim),
               all = static_cast<double>(exponentials * options.features);
  count = columns * options.features;
  forward = {flops, all};
  backward = {(options.learned() ? 2 : 1) * flops};
  computed_again = true;
  const Generator first_draw = scope.random.fork("features").fork(uint64_t{0});
  if (options.learned()) {
    const Tensor first = draw(first_draw);
    trained_.emplace(scope.scope("features"), first.shape(),
                     [&](Tensor& W, const Generator&) { copy_into(W, first); });
  } else {
    redraws_.emplace(scope.scope, scope.random.fork("features"), options.redraw_interval);
    features_.emplace(scope.scope("features"), draw(first_draw));
  }
  if (with_phases) phases_.emplace(scope.scope("phases"), draw_phases(first_draw));
}

double RandomFeatureMap::x_scale() const {
  return std::pow(static_cast<double>(config_.head_dim), -0.25);
}

Tensor RandomFeatureMap::draw(const Generator& generator) const {
  const auto draw_one = options_.draw == "iid"      ? draw_gaussian
                        : options_.draw == "givens" ? draw_givens
                                                    : draw_orthogonal;
  const RowNorm norm = options_.norm == "chi" ? RowNorm::chi : RowNorm::sqrt_d;
  const int64_t D = config_.head_dim;
  if (!options_.per_head()) return draw_one(generator, options_.features, D, norm).to(dtype_);
  Tensor w = Tensor::empty({config_.heads, options_.features, D}, dtype_);
  for (int64_t h = 0; h < config_.heads; ++h)
    copy_into(w.select(0, h), draw_one(generator.fork("head").fork(h), options_.features, D, norm));
  return w;
}

Tensor RandomFeatureMap::draw_phases(const Generator& generator) const {
  Tensor b = Tensor::empty(
      options_.per_head() ? Shape{config_.heads, options_.features} : Shape{options_.features},
      dtype_);
  fill_uniform(b, generator.fork("phases"), 0, 2 * std::numbers::pi);
  return b;
}

void RandomFeatureMap::on_step() {
  if (learned() || !redraws_->step()) return;
  copy_into(features_->mutable_value(), draw(redraws_->generator()));
  if (phases_) copy_into(phases_->mutable_value(), draw_phases(redraws_->generator()));
}

Variable RandomFeatureMap::projection(double scale) const {
  return affine(learned() ? Variable(*trained_) : Variable(features_->value()), scale);
}

Variable RandomFeatureMap::project(const Variable& x, double scale) const {
  return linear_of_heads(x, projection(scale));
}

TrigonometricMap::TrigonometricMap(const MapScope& scope, const RandomFeatureOptions& options,
                                   bool with_phases, const GuardOptions& guard_options)
    : RandomFeatureMap(scope, options, with_phases, with_phases ? 1 : 2, with_phases ? 1 : 2) {
  // cos² + sin² = 1 for each w; cos² is 1/2 on average
  const auto m = static_cast<double>(options.features);
  guard = guard_options.of(with_phases ? m / 2 : m);
}

FeatureMap::Features RandomFeatureMap::wave_features(const Variable& q, const Variable& k,
                                                     double scale, bool factor) const {
  const Tensor phases = phases_ ? phases_->value() : Tensor();
  if (!learned() && !config_.causal)
    return {q,
            k,
            {.projection = projection(scale).value(),
             .half_norm = factor ? -scale * scale / 2 : 0,
             .waves = true,
             .phases = phases}};
  return {.query = waves(project(q, scale), phases),
          .key = waves(project(k, scale), phases),
          .key_log = factor ? half_square(k, scale) : Variable()};
}

}  // namespace longhand::attention

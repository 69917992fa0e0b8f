// Linear attention: the inner product φ(q)·φ(k) of a fixed feature map replaces the softmax kernel.
// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5-9. These kernels do not approximate the
// softmax kernel: only taylor2 has the factor 1/sqrt(D), and nothing is added to the normaliser.
//
//   elu1:          elu(x) + 1, eq. 7
//   relu, squared_relu:  max(x, 0), max(x, 0)²
//   exp:           e^x
//   taylor2:       φ(q)·φ(k) = 1 + s + s²/2, s = q·k / sqrt(D), the Taylor expansion of e^s, at
//                  least 1/2. Arora et al. 2024, "Based" (arXiv 2402.18668). The features hold only
//                  the upper triangle of x x^T, with its diagonal divided by sqrt(2).
//   cosformer:     max(x, 0) ⊗ [cos, sin](π i / 2M) for token i = 1, 2, …, M = max_length: weights
//                  relu(q_i)·relu(k_j) cos(π (i - j) / 2M). Qin et al. 2022 (arXiv 2202.08791)
//   hedgehog:      softmax([A x, -A x]), A (D, D) learned, per head, one for queries and one for
//                  keys, initialised to the identity. Zhang et al. 2024 (arXiv 2402.04347)
//   dpfp:          r_i r_(i+j) for all i and j = 1, …, nu, r = [max(x, 0), max(-x, 0)], whose indices
//                  continue at the start. Schlag et al. 2021 (arXiv 2102.11174), eq. 37-38
//   rebased:       φ(q)·φ(k) = (q'·k')²/2, x' = γ ∘ (x - mean x) / sqrt(var x + 1e-5) + β, γ and β
//                  (D) learned, per head, for queries and for keys. Aksenov et al. 2024 (arXiv
//                  2402.10644). The features hold the upper triangle of x' x'^T, as above.
//   t2r:           max(W x + b, 0), W (m, D) and b learned, per head, the same for queries and keys.
//                  Kasai et al. 2021 (arXiv 2103.13076), eq. 4
//
// With rectified features, and rebased, all weights of a query may be 0, and at large norms those of all
// but taylor2 may underflow: its result is then 0, and it is counted in the metric
// nonpositive_normalizers.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/memory.h"
#include "longhand/attention/ops/products.h"
#include "longhand/attention/registry.h"
#include "longhand/autograd/ops.h"
#include "longhand/nn/init.h"

namespace longhand::attention {
namespace {

void identity(Tensor& w, const Generator&) {  // (H, D, D)
  const int64_t H = w.size(0), D = w.size(1);
  w.fill(0);
  w.reshape({H, D * D}).slice(1, 0, D * D, D + 1).fill(1);
}

struct LinearOptions {
  std::string feature_map = "elu1";
  int64_t nu = 1, features = 32;

  void describe(OptionVisitor& v) {
    v.choice("feature_map", feature_map,
             {"elu1", "relu", "squared_relu", "exp", "taylor2", "cosformer", "hedgehog", "dpfp",
              "rebased", "t2r"},
             "feature map of queries and keys");
    v.when(feature_map == "dpfp", "feature_map = \"dpfp\"", [&] {
      v.integer("nu", nu, {1, 1 << 16}, "number of shifts; there are 2 D nu features");
    });
    v.when(feature_map == "t2r", "feature_map = \"t2r\"", [&] {
      v.integer("features", features, {1, 1 << 20}, "number of learned features m");
    });
  }

  void check(const Config& config) const {
    if (feature_map != "dpfp") return;
    const int64_t D = config.head_dim;
    config.options.require(
        nu < 2 * D, "nu",
        concat_message("expected less than 2 D = ", 2 * D, " for heads of width ", D,
                       ": further shifts repeat the first ones"));
  }

  // Whether normalisers may be 0.
  bool may_vanish() const {
    return feature_map == "relu" || feature_map == "squared_relu" || feature_map == "cosformer" ||
           feature_map == "dpfp" || feature_map == "rebased" || feature_map == "t2r";
  }

  // Whether normalisers may be 0 or underflow. Those of taylor2 are at least 1/2.
  bool counts() const { return feature_map != "taylor2"; }

  // The number of features.
  int64_t count(int64_t D) const {
    if (feature_map == "taylor2") return 1 + D + D * (D + 1) / 2;
    if (feature_map == "rebased") return D * (D + 1) / 2;
    if (feature_map == "cosformer" || feature_map == "hedgehog") return 2 * D;
    if (feature_map == "dpfp") return 2 * D * nu;
    return feature_map == "t2r" ? features : D;
  }

  Capabilities capabilities() const {
    const bool by_position = feature_map == "cosformer",
               squares = feature_map == "taylor2" || feature_map == "rebased";
    const char* const width = feature_map == "t2r"    ? "m D"
                              : feature_map == "dpfp" ? "nu D^2"
                                                      : "D^2";
    return {.averages = !may_vanish(),
            .positional = by_position,
            .causal = true,
            .decodes = true,
            .fixed_length = by_position,
            .needs = Needs::sums,
            .time = squares ? "N D^3" : std::string("N ") + width,
            .memory = squares ? "N D^2" : width,
            .state = counts() ? "nonpositive_normalizers" : "-"};
  }
  // Features of queries and keys instead of these; exp computes them tile by tile.
  Memory memory(const Config& config, const Extent& e) const {
    const MemorySizes z(config, e);
    const double qk = z.values + z.keys, D = z.D, m = static_cast<double>(count(config.head_dim)),
                 written = qk / D * m;
    const auto of = [&](double kept, double now) {
      return feature_memory(config, e, m, kept, now);
    };
    if (feature_map == "exp") return of(0, 0);
    if (feature_map == "squared_relu") return of(qk, qk);
    if (feature_map == "cosformer" || feature_map == "dpfp") return of(written, written);
    if (feature_map == "hedgehog") {
      Memory out = of(written, written);
      out.forward *= 1.2;
      out.parameters = 2 * z.H * D * D;
      return out;
    }
    if (feature_map == "t2r") {
      Memory out = of(written, written);
      out.parameters = z.H * m * (D + 1);
      return out;
    }
    if (feature_map != "taylor2" && feature_map != "rebased") return of(0, qk);
    Memory out = of(written, written);
    out.forward = 0;
    if (feature_map == "rebased") {
      out.parameters = 4 * z.H * D;
      out.kept += 2 * qk;
    }
    return out;
  }
};

class Linear final : public FeatureAttention {
 public:
  Linear(const nn::Scope& scope_, const Config& config, const LinearOptions& options)
      : FeatureAttention(scope_, config), map_(options.feature_map), nu_(options.nu) {
    const int64_t H = config.heads, D = config.head_dim, m = options.count(D);
    const auto d = static_cast<double>(D), all = static_cast<double>(m);
    if (options.counts()) count_nonpositive();
    if (map_ == "taylor2" || map_ == "rebased") {
      set_work(m, {2 * all, 0}, {4 * all, 0});
    } else if (map_ == "dpfp") {
      set_work(m, {all, 0}, {4 * all, 0});
    } else if (map_ == "cosformer") {
      set_work(m, {2 * d, 0}, {2 * d, 0});
    } else if (map_ == "hedgehog") {
      set_work(m, {2 * d * d, 2 * d}, {4 * d * d, 2 * d});
      query_map_.emplace(scope("query_map"), Shape{H, D, D}, identity);
      key_map_.emplace(scope("key_map"), Shape{H, D, D}, identity);
    } else if (map_ == "t2r") {
      set_work(m, {2 * all * d, 0}, {4 * all * d, 0});
      weight_.emplace(scope("weight"), Shape{H, m, D}, nn::init::xavier_uniform());
      bias_.emplace(scope("bias"), Shape{H, m}, nn::init::zeros());
    } else {
      const double exponentials = options.may_vanish() ? 0 : d;
      set_work(m, {0, exponentials}, {0, exponentials});
    }
    if (map_ != "rebased") return;
    query_.emplace(scope("query_scale"), scope("query_shift"), Shape{H, D});
    key_.emplace(scope("key_scale"), scope("key_shift"), Shape{H, D});
  }

  Features features(const Variable& q, const Variable& k, int64_t position) const override {
    if (map_ == "exp") return {q, k, true};
    if (map_ == "taylor2") {
      const double scale = std::pow(static_cast<double>(q.size(3)), -0.25);
      return {quadratic_products(scale * q, true), quadratic_products(scale * k, true)};
    }
    if (map_ == "rebased")
      return {quadratic_products((*query_)(q), false), quadratic_products((*key_)(k), false)};
    if (map_ == "dpfp") return {shifted_products(q, nu_), shifted_products(k, nu_)};
    if (map_ == "t2r") {
      const auto learned = [&](const Variable& x) {
        return relu(linear_of_heads(x, *weight_) + *bias_);
      };
      return {learned(q), learned(k)};
    }
    if (map_ == "cosformer") return {with_positions(q, position), with_positions(k, position)};
    if (map_ == "hedgehog") {  // the query's normaliser cancels
      const Variable uq = linear_of_heads(q, *query_map_), uk = linear_of_heads(k, *key_map_);
      return {concat({uq, -uq}, 3), log_softmax(concat({uk, -uk}, 3)), true};
    }
    const auto map = [&](const Variable& x) {
      return map_ == "elu1" ? elu_plus_one(x) : map_ == "relu" ? relu(x) : square(relu(x));
    };
    return {map(q), map(k)};
  }

 private:
  // Returns the cosformer features (B, N, H, 2D) of x (B, N, H, D), whose first token is at
  // `position`.
  Variable with_positions(const Variable& x, int64_t position) const {
    const int64_t N = x.size(1), M = config().max_length;
    check<ShapeError>(position + N <= M, "cosformer: expected at most max_length = ", M,
                      " tokens, got ", position + N);
    const auto table = [&](auto f) {
      std::vector<double> values;
      for (int64_t i = position + 1; i <= position + N; ++i)
        values.push_back(
            f(std::numbers::pi * static_cast<double>(i) / (2 * static_cast<double>(M))));
      return Variable(Tensor::from(values, {1, N, 1, 1}).to(x.dtype()));
    };
    const Variable y = relu(x);
    return concat({y * table([](double a) { return std::cos(a); }),
                   y * table([](double a) { return std::sin(a); })},
                  3);
  }

  // γ ∘ norm(x) + β, for x (B, N, H, D).
  struct Affine {
    Affine(const nn::Scope& of_scale, const nn::Scope& of_shift, const Shape& shape)
        : scale(of_scale, shape, nn::init::ones()), shift(of_shift, shape, nn::init::zeros()) {}
    Variable operator()(const Variable& x) const { return layer_norm(x, {}, {}) * scale + shift; }

    nn::Parameter scale, shift;  // (H, D): γ and β
  };

  std::string map_;
  int64_t nu_;
  std::optional<nn::Parameter> query_map_, key_map_;  // (H, D, D)
  std::optional<nn::Parameter> weight_, bias_;        // (H, m, D) and (H, m)
  std::optional<Affine> query_, key_;
};

}  // namespace

Spec linear_variant() {
  return make_spec<LinearOptions, Linear>(
      {.summary = "kernels of feature maps: elu(x) + 1 and others, fixed or learned",
       .paper = "Katharopoulos et al. 2020, arXiv 2006.16236",
       .cases = {{},
                 {{"feature_map", "relu"}},
                 {{"feature_map", "squared_relu"}},
                 {{"feature_map", "exp"}},
                 {{"feature_map", "taylor2"}},
                 {{"feature_map", "cosformer"}},
                 {{"feature_map", "hedgehog"}},
                 {{"feature_map", "dpfp"}, {"nu", 2}},
                 {{"feature_map", "rebased"}},
                 {{"feature_map", "t2r"}, {"features", 6}}},
       .evidence = {{"kernels",
                     "weights of taylor2, cosformer, elu1, dpfp and rebased match their closed "
                     "forms; t2r with W = I is relu",
                     conformance::linear_kernels}}});
}

}  // namespace longhand::attention

// Linear attention: the inner product φ(q)·φ(k) of a feature map replaces the softmax kernel.
// Katharopoulos et al. 2020 (arXiv 2006.16236), eq. 5-9. These kernels do not approximate the
// softmax kernel: only taylor2 has the factor 1/sqrt(D), and nothing is added to the normaliser.
// The maps, fixed or learned, are in features/, each with its formula:
//
//   pointwise.cpp                 elu1, relu, squared_relu, exp
//   taylor2.cpp, rebased.cpp      squares of inner products
//   dpfp.cpp                      products of rectified entries
//   cosformer.cpp                 relu, rotated by the position
//   hedgehog.cpp, t2r.cpp         learned maps
//
// With rectified features or rebased, all weights of a query may be 0; at large norms, all but
// taylor2 may underflow. The result is then 0, and the query is counted in the metric
// nonpositive_normalizers.
#include <algorithm>
#include <vector>

#include "longhand/attention/bases/feature_attention.h"
#include "longhand/attention/conformance/evidence.h"
#include "longhand/attention/features/kinds.h"
#include "longhand/attention/registry.h"

namespace longhand::attention {
namespace {

constexpr const MapKind* kinds[] = {&elu1_map,    &relu_map,      &squared_relu_map, &exp_map,
                                    &taylor2_map, &cosformer_map, &hedgehog_map,     &dpfp_map,
                                    &rebased_map, &t2r_map};

struct LinearOptions {
  std::string feature_map = "elu1";
  MapKindOptions of_map;

  const MapKind& kind() const {
    return **std::ranges::find_if(
        kinds, [this](const MapKind* kind) { return feature_map == kind->name; });
  }

  void describe(OptionVisitor& v) {
    std::vector<std::string> names;
    for (const MapKind* kind : kinds) names.emplace_back(kind->name);
    v.choice("feature_map", feature_map, names, "feature map of queries and keys");
    v.when(feature_map == "dpfp", "feature_map = \"dpfp\"", [&] {
      v.integer("nu", of_map.nu, {1, 1 << 16}, "number of shifts; there are 2 D nu features");
    });
    v.when(feature_map == "t2r", "feature_map = \"t2r\"", [&] {
      v.integer("features", of_map.features, {1, 1 << 20}, "number of learned features m");
    });
  }

  void check(const Config& config) const {
    if (feature_map != "dpfp") return;
    const int64_t D = config.head_dim;
    config.options.require(
        of_map.nu < 2 * D, "nu",
        concat_message("expected less than 2 D = ", 2 * D, " for heads of width ", D,
                       ": further shifts repeat the first ones"));
  }

  Capabilities capabilities() const {
    return {.averages = !kind().may_vanish,
            .positional = kind().by_position,
            .causal = true,
            .decodes = true,
            .fixed_length = kind().by_position,
            .needs = Needs::sums,
            .time = kind().time,
            .memory = kind().memory,
            .state = kind().may_underflow ? "nonpositive_normalizers" : "-"};
  }
};

struct Linear final : FeatureAttention {
  Linear(const nn::Scope& scope_, const Config& config, const LinearOptions& options)
      : FeatureAttention(scope_, config, [&](const MapScope& scope) {
          auto map = options.kind().make(scope, options.of_map);
          map->may_underflow = options.kind().may_underflow;
          return map;
        }) {}
};

using namespace conformance;

void linear_kernels(Findings& f) {
  const auto has_features = [&](const char* what, const OptionSet& options, const auto& phi) {
    has_weights(f, what, "linear", options,
                [&](const Variable& q, const Variable& k, const Tensor& visible) {
                  return definitions::of_features(phi(q), phi(k), visible);
                });
  };
  using Named = std::pair<const char*, const char*>;
  for (const auto& [what, map] :
       {Named("taylor2: 1 + s + s²/2", "taylor2"),
        Named("cosformer: relu(q)·relu(k) cos(π (i - j) / 2M)", "cosformer"),
        Named("elu + 1", "elu1")})
    has_features(what, {{"feature_map", map}}, [map = map](const Variable& x) {
      return definitions::linear_features(map, x, N);
    });
  has_features("dpfp", {{"feature_map", "dpfp"}, {"nu", 2}},
               [](const Variable& x) { return definitions::dpfp_features(x, 2); });
  const Variable scale(Tensor::full({H, D}, 1, DType::f64)),
      shift(Tensor::zeros({H, D}, DType::f64));
  has_features("rebased: (norm(q)·norm(k))²", {{"feature_map", "rebased"}},
               [&](const Variable& x) { return definitions::rebased_features(x, scale, shift); });
  const auto learned = make_variant("linear", {{"feature_map", "t2r"}, {"features", D}}, made());
  Tensor W = Tensor::empty({H, D, D}, DType::f64);
  for (int64_t h = 0; h < H; ++h) copy_into(W.select(0, h), identity(D));
  set(*learned, {{"weight", W}});
  equal(f, "t2r with W = I and relu", *learned,
        *make_variant("linear", {{"feature_map", "relu"}}, made()), 1e-12);
}

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
                     linear_kernels}}});
}

}  // namespace longhand::attention

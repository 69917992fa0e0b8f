// Every variant computes its definition.
#include "longhand/attention/definitions/definitions.h"

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;
namespace def = longhand::attention::definitions;

namespace {

// The arguments of a definition: q, k, the parameters by name, and the visible keys.
struct Given {
  Variable q, k;
  std::map<std::string, Tensor> state;
  Tensor visible;
  int64_t max_length;

  Variable at(const std::string& name) const { return Variable(state.at(name)); }
};
struct Definition {
  std::string name;
  Settings options;
  std::function<Variable(const Given&)> weights;
  double std = 1;         // of q and k
  bool positive = false;  // q and k mostly are, so that rectified features overlap
  bool causal = true;     // has a causal form
  bool lengths = true;    // the definition supports lengths
};

Variable of_features(const Given& g, const Variable& fq, const Variable& fk) {
  return def::of_features(fq, fk, g.visible);
}

std::vector<Definition> all() {
  std::vector<Definition> list;
  list.push_back({"softmax", {}, [](const Given& g) { return def::softmax(g.q, g.k, g.visible); }});
  list.push_back({"softmax", {{"impl", std::string("naive")}, {"scale", 0.3}}, [](const Given& g) {
                    return def::softmax(g.q, g.k, g.visible, 0.3);
                  }});
  list.push_back({"linformer",
                  {{"k", int64_t{5}}, {"sharing", std::string("none")}},
                  [](const Given& g) {
                    const int64_t M = g.k.size(1);
                    return def::linformer(g.q, g.k, slice(g.at("projection_k"), -1, 0, M),
                                          slice(g.at("projection_v"), -1, 0, M));
                  },
                  1,
                  false,
                  false,
                  false});
  list.push_back({"nystrom",
                  {{"landmarks", int64_t{5}}, {"pinv", std::string("svd")}},
                  [](const Given& g) { return def::nystrom(g.q, g.k, 5); },
                  1,
                  false,
                  false,
                  false});
  list.push_back({"nystrom",
                  {{"landmarks", int64_t{5}}},
                  [](const Given& g) { return def::nystrom(g.q, g.k, 5, 6); },
                  1,
                  false,
                  false,
                  false});
  list.push_back({"svd",
                  {{"rank", int64_t{3}}},
                  [](const Given& g) { return def::svd(g.q, g.k, 3, g.visible); },
                  1,
                  false,
                  false});
  for (const std::string map :
       {"elu1", "relu", "squared_relu", "exp", "taylor2", "cosformer", "hedgehog"}) {
    const bool rectified = map == "relu" || map == "squared_relu" || map == "cosformer";
    list.push_back({"linear",
                    {{"feature_map", map}},
                    [map](const Given& g) {
                      const auto features = [&](const Variable& x, const char* A) {
                        return def::linear_features(map, x, g.max_length,
                                                    map == "hedgehog" ? g.at(A) : Variable());
                      };
                      return of_features(g, features(g.q, "query_map"), features(g.k, "key_map"));
                    },
                    1,
                    rectified});
  }
  list.push_back({"linear",
                  {{"feature_map", std::string("dpfp")}, {"nu", int64_t{3}}},
                  [](const Given& g) {
                    return of_features(g, def::dpfp_features(g.q, 3), def::dpfp_features(g.k, 3));
                  },
                  1,
                  true});
  list.push_back({"linear",
                  {{"feature_map", std::string("rebased")}},
                  [](const Given& g) {
                    return of_features(
                        g, def::rebased_features(g.q, g.at("query_scale"), g.at("query_shift")),
                        def::rebased_features(g.k, g.at("key_scale"), g.at("key_shift")));
                  },
                  1,
                  true});
  list.push_back({"linear",
                  {{"feature_map", std::string("t2r")}, {"features", int64_t{7}}},
                  [](const Given& g) {
                    const auto features = [&](const Variable& x) {
                      return def::t2r_features(x, g.at("weight"), g.at("bias"));
                    };
                    return of_features(g, features(g.q), features(g.k));
                  },
                  1,
                  true});
  for (const std::string kernel : {"positive", "hyperbolic", "trigonometric", "trigonometric_bias",
                                   "relu", "exp", "gelu", "square"}) {
    // With signed features, normalisers stay away from 0 only for small inputs.
    const bool waves = kernel.substr(0, 4) == "trig";
    const bool plus_eps = kernel == "relu" || kernel == "gelu" || kernel == "square";
    list.push_back({"performer",
                    {{"features", int64_t{200}}, {"kernel", kernel}},
                    [kernel, plus_eps](const Given& g) {
                      const auto features = [&](const Variable& x) {
                        return def::performer_features(
                            kernel, x, g.at("features"), plus_eps ? 1e-3 : 0,
                            kernel == "trigonometric_bias" ? g.at("phases") : Variable());
                      };
                      return of_features(g, features(g.q), features(g.k));
                    },
                    waves ? 0.3 : 1});
  }
  list.push_back(
      {"efficient", {}, [](const Given& g) { return def::efficient(g.q, g.k, g.visible); }});
  list.push_back({"rff",
                  {{"features", int64_t{200}}, {"kernel", std::string("gaussian")}, {"sigma", 1.5}},
                  [](const Given& g) {
                    const double scale = std::pow(static_cast<double>(g.q.size(3)), -0.25) / 1.5;
                    const auto features = [&](const Variable& x) {
                      return def::gaussian_features(x * scale, g.at("features"));
                    };
                    return of_features(g, features(g.q), features(g.k));
                  },
                  0.3});
  list.push_back({"rff",
                  {{"features", int64_t{200}}},
                  [](const Given& g) {
                    const auto features = [&](const Variable& x) {
                      return def::performer_features("trigonometric", x, g.at("features"));
                    };
                    return of_features(g, features(g.q), features(g.k));
                  },
                  0.3});
  for (const bool normalized : {true, false})
    list.push_back(
        {"gaussian", {{"sigma", 0.7}, {"normalized", normalized}}, [normalized](const Given& g) {
           return def::gaussian(g.q, g.k, g.visible, 0.7, normalized);
         }});
  list.push_back({"lowrank", {{"rank", int64_t{3}}}, [](const Given& g) {
                    const auto rows = [&](const char* of) {
                      return slice(g.at(of), 1, 0, g.q.size(1));
                    };
                    return def::lowrank(rows("u"), rows("v"), false, g.visible);
                  }});
  list.push_back({"lowrank", {{"rank", int64_t{3}}, {"softmax", true}}, [](const Given& g) {
                    const auto rows = [&](const char* of) {
                      return slice(g.at(of), 1, 0, g.q.size(1));
                    };
                    return def::lowrank(rows("u"), rows("v"), true, g.visible);
                  }});
  list.push_back({"mean", {}, [](const Given& g) { return def::mean(g.visible, DType::f64); }});
  list.push_back({"none", {}, [](const Given& g) { return def::none(g.visible, DType::f64); }});
  return list;
}

const std::vector<Definition> definitions_of_variants = all();

}  // namespace

TEST_CASE("definitions: every variant computes what its definition says") {
  const Definition d = GENERATE(from_range(definitions_of_variants));
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(7, 65, 140);
  const bool padded = GENERATE(false, true);
  if ((causal && !d.causal) || (padded && !d.lengths)) return;
  INFO(d.name << " causal " << causal << " N " << N << " padded " << padded);
  for (const auto& [key, value] : d.options) INFO(key << " = " << to_string(value));
  const auto variant =
      make_variant(d.name, {.max_length = N + 3, .causal = causal}, options_of(d.options));
  const auto input = [&](uint64_t seed) {
    const Variable x(normal({2, N, 2, 4}, seed, DType::f64, d.std));
    return (d.positive ? affine(x, 1, 2) : x).value();
  };
  Given g{Variable(input(1)), Variable(input(2)), {}, {}, N + 3};
  if (d.name == "linear")  // learned maps begin with the identity
    for (auto& [name, parameter] : variant->named_parameters())
      copy_into(parameter.mutable_value(), normal(parameter.shape(), name.size()));
  for (const auto& [name, tensor] : variant->state_dict()) g.state[name] = tensor;
  const Variable v(normal({2, N, 2, 4}, 3));
  const Mask mask =
      padded ? lengths({static_cast<int32_t>(N), static_cast<int32_t>(N / 2 + 1)}) : Mask{};
  g.visible = def::visible(N, N, {.causal = causal, .lengths = mask.lengths});
  CHECK(near(variant->forward(g.q, g.k, v, mask, {}).value(), def::apply(d.weights(g), v).value(),
             1e-9));
}

TEST_CASE("definitions: windows, random weights and landmarks") {
  const int64_t N = 40;
  const Variable q(normal({2, N, 2, 4}, 1)), k(normal({2, N, 2, 4}, 2)), v(normal({2, N, 2, 4}, 3));
  for (const bool causal : {false, true}) {
    const auto variant = make_variant(
        "window", {.max_length = N, .causal = causal},
        options_of(
            {{"window", int64_t{5}}, {"global_tokens", int64_t{2}}, {"dilation", int64_t{3}}}));
    const Tensor seen =
        def::visible(N, N, {.causal = causal, .window = 5, .globals = 2, .dilation = 3});
    CHECK(near(variant->forward(q, k, v, {}, {}).value(),
               def::apply(def::softmax(q, k, seen), v).value(), 1e-12));
  }
  // All rows as landmarks make Skyformer the Gaussian kernel.
  const Tensor seen = def::visible(N, N, {});
  CHECK(near(def::skyformer(q, k, concat({q, k}, 1), 0.5).value(),
             def::gaussian(q, k, seen, 0.5, false).value(), 1e-8));
  const Variable R(normal({2, N, N}, 4));
  const Variable weights = def::random(R, seen);
  CHECK(near(sum(weights, {3}).value(), Tensor::full({1, 2, N}, 1, DType::f64), 1e-14));
  CHECK(near(log(slice(weights, 3, 0, 1) / slice(weights, 3, 1, 2)).value().squeeze(0),
             (slice(R, 2, 0, 1) - slice(R, 2, 1, 2)).value(), 1e-12));
}

TEST_CASE("definitions: retention is a sum over the past, one decay after the other") {
  const int64_t N = 9;
  const Tensor q = normal({1, N, 1, 3}, 1), k = normal({1, N, 1, 3}, 2);
  Tensor g = normal({1, N, 1, 3}, 3);
  for (int64_t i = 0; i < g.numel(); ++i) g.data<double>()[i] = -std::abs(g.data<double>()[i]);
  const Tensor W = def::retention(Variable(q), Variable(k), Variable(g)).value();
  for (int64_t i = 0; i < N; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double w = 0;
      for (int64_t l = 0; l < 3 && j <= i; ++l) {
        double p = q.at({0, i, 0, l}) * k.at({0, j, 0, l});
        for (int64_t t = j + 1; t <= i; ++t) p *= std::exp(g.at({0, t, 0, l}));
        w += p;
      }
      CHECK(W.at({0, 0, i, j}) == Approx(w).margin(1e-14));
    }
}

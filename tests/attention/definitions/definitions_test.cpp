// Every variant computes its definition.
#include "longhand/attention/definitions/definitions.h"

#include "longhand/attention/bases/delta_attention.h"
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
  bool full = true;       // has a form that is not causal
};

// The segment of each token, the shorter ones first: (B, H, N) i32.
Tensor segments(const Variable& x, int64_t count) {
  const int64_t B = x.size(0), N = x.size(1), H = x.size(2), size = N / count, longer = N % count;
  Tensor out = Tensor::empty({B, H, N}, DType::i32);
  for (int64_t row = 0; row < B * H; ++row) {
    int32_t* to = out.data<int32_t>() + row * N;
    for (int64_t s = 0; s < count; ++s)
      to = std::fill_n(to, size + (s >= count - longer ? 1 : 0), static_cast<int32_t>(s));
  }
  return out;
}

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
  list.push_back({"sigmoid", {{"keys", int64_t{7}}}, [](const Given& g) {
                    return def::sigmoid(g.q, g.k, g.visible, -std::log(7.0));
                  }});
  list.push_back({"differential", {{"norm", false}}, [](const Given& g) {
                    const auto row = [&](int64_t i) { return select(g.at("lambda"), 0, i); };
                    const Variable lambda = exp(sum(row(0) * row(1))) - exp(sum(row(2) * row(3)));
                    return def::differential(g.q, g.k, 0.2 + lambda.value().item(), g.visible);
                  }});
  list.push_back({"moba",
                  {{"block", int64_t{5}}, {"blocks", int64_t{3}}},
                  [](const Given& g) { return def::moba(g.q, g.k, 5, 3, g.visible); },
                  1,
                  false,
                  true,
                  true,
                  false});
  list.push_back(
      {"reformer",
       {{"buckets", int64_t{4}}, {"rounds", int64_t{3}}, {"window", int64_t{6}}},
       [](const Given& g) { return def::reformer(g.q, g.state.at("rotations"), 6, g.visible); }});
  for (const int64_t topk : {0, 5})
    list.push_back(
        {"clustered",
         {{"clusters", int64_t{3}}, {"topk", topk}, {"kmeans_steps", int64_t{0}}},
         [topk](const Given& g) { return def::clustered(g.q, g.k, segments(g.q, 3), topk); },
         1,
         false,
         false,
         false});
  for (const bool causal : {false, true})
    list.push_back({"eva",
                    {{"window", int64_t{12}}, {"chunk", int64_t{4}}},
                    [causal](const Given& g) { return def::eva(g.q, g.k, 12, 4, causal); },
                    1,
                    false,
                    causal,
                    false,
                    !causal});
  for (const std::string weights : {"query", "balance"})
    list.push_back(
        {"lara",
         {{"landmarks", int64_t{5}}, {"weights", weights}},
         [weights](const Given& g) { return def::lara(g.q, g.k, 5, weights == "balance"); },
         1,
         false,
         false,
         false});
  list.push_back(
      {"scatterbrain", {{"window", int64_t{5}}, {"features", int64_t{8}}}, [](const Given& g) {
         const auto features = [&](const Variable& x) {
           return def::performer_features("positive", x, g.at("features")) / std::sqrt(8.0);
         };
         return def::scatterbrain(g.q, g.k, features(g.q), features(g.k), 5, g.visible);
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
  if ((causal && !d.causal) || (!causal && !d.full) || (padded && !d.lengths)) return;
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

TEST_CASE("definitions: variants whose weights are computed from tokens, or differ by channel") {
  const int64_t N = 21, H = 2, D = 4;
  const Made made{.max_length = N, .causal = true};
  const Tensor seen = def::visible(N, N, {.causal = true});
  const auto input = [&](uint64_t seed) { return Variable(normal({2, N, H, D}, seed)); };
  const Inputs in{input(1), input(2), input(3), Variable(normal({2, N, H * D}, 4))};
  const auto state_of = [](Variant& variant) {
    std::map<std::string, Variable> state;
    for (auto& [name, parameter] : variant.named_parameters()) {
      copy_into(parameter.mutable_value(), normal(parameter.shape(), name.size()));
      state[name] = parameter;
    }
    return state;
  };
  const auto synthesizer = make_variant("synthesizer", made, options_of({{"hidden", int64_t{3}}}));
  auto s = state_of(*synthesizer);
  const Variable hidden =
      matmul(in.x, transpose(s.at("hidden.weight"), 0, 1)) + s.at("hidden.bias");
  CHECK(near(
      synthesizer->forward(in, {}, {}).value(),
      def::apply(
          def::synthesizer(reshape(hidden, {2, N, H, 3}), s.at("weight"), s.at("bias"), seen), in.v)
          .value(),
      1e-12));

  const auto path =
      make_variant("path", made, options_of({{"rank", int64_t{3}}, {"forget", true}}));
  auto p = state_of(*path);
  const auto of_x = [&](const std::string& name) {
    const Variable y = matmul(in.x, transpose(p.at(name + ".weight"), 0, 1));
    return sigmoid(y + p.at(name + ".bias"));
  };
  const Variable u = reshape(
      matmul(in.x, transpose(matmul(p.at("up.weight"), p.at("down.weight")), 0, 1)), in.q.shape());
  const Variable w = u / sqrt(sum(square(u), {3}, true));
  CHECK(near(
      path->forward(in, {}, {}).value(),
      def::apply(def::path(in.q, in.k, w, 2 * of_x("beta"), log(of_x("gate")), seen), in.v).value(),
      1e-5));  // the variant adds eps to the square of |u|

  const auto aft = make_variant("aft", made, options_of({{"kind", std::string("full")}}));
  const Variable biases = state_of(*aft).at("biases");
  CHECK(near(aft->forward({in.q, in.k, in.v}, {}, {}).value(),
             def::aft(in.q, in.k, in.v, biases, seen).value(), 1e-12));

  // Two delta rules a token: the first decays and corrects towards 0, the second writes the value.
  const auto rwkv7 =
      make_variant("rwkv7", made, options_of({{"norm", false}, {"bonus", false}, {"gate", false}}));
  state_of(*rwkv7);
  const DeltaInputs of = dynamic_cast<const DeltaAttention&>(*rwkv7).operands(in);
  const auto rules = [](const Variable& first, const Variable& second) {
    Shape shape = first.shape();
    shape[1] *= 2;
    return reshape(stack({first, second}, 2), shape);
  };
  const Variable beta(Tensor::full({2, 2 * N, H}, 1, DType::f64)),
      none(Tensor::zeros(of.q.shape(), DType::f64));
  const Variable W = def::delta(rules(none, of.q / 2.0), rules(of.k, of.write), beta,
                                rules(of.log_decay, none), rules(of.read, none));
  CHECK(near(rwkv7->forward(in, {}, {}).value(),
             def::apply(slice(slice(W, 2, 1, 2 * N, 2), 3, 1, 2 * N, 2), in.v).value(), 1e-12));
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

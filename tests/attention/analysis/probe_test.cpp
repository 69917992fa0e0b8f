// What a model's attention receives, and the weights it gives.
#include "longhand/attention/analysis/probe.h"

#include <cmath>
#include <numeric>

#include "longhand/attention/analysis/error.h"
#include "longhand/attention/analysis/weights.h"
#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::attention::analysis;
using longhand::test::near;

namespace {

TransformerConfig config_of(const std::string& attention) {
  return {.vocabulary = 9,
          .classes = 3,
          .max_length = 20,
          .d_model = 16,
          .heads = 4,
          .layers = 2,
          .kv_heads = 2,
          .positions = "rotary",
          .attention = attention};
}

Tensor tokens() {
  std::vector<int32_t> ids(2 * 12);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 5 % 9);
  return Tensor::from(ids, {2, 12});
}

}  // namespace

TEST_CASE("analysis: a probe sees what every layer attends to") {
  Transformer model(nn::root(DType::f64, 3), config_of("softmax"));
  const Tensor lengths = Tensor::from<int32_t>({12, 7}, {2});
  const Tensor before = model.forward(tokens(), lengths, {}).value();
  const auto layers = probe(model, tokens(), lengths);
  REQUIRE(layers.size() == 2);
  CHECK(layers[1].layer == 1);
  CHECK(layers[0].in.q.shape() == Shape{2, 12, 4, 4});
  CHECK(layers[0].in.k.shape() == Shape{2, 12, 2, 4});  // each for two heads of queries
  CHECK(layers[0].lengths == std::vector<int64_t>{12, 7});
  // Rotated queries: attention of the probe's q, k and v is that of the model's own variant.
  const auto errors = errors_of_layer(model.kernel(1), layers[1], false);
  REQUIRE(errors.size() == 4);
  for (const VariantError& e : errors) {
    for (const Estimate* const each : {&e.output, &e.weights, &e.dq, &e.dk, &e.dv}) {
      CHECK(each->mean <= 1e-12);
      CHECK(each->count == 2);
    }
  }
  const std::vector<HeadInputs> heads = heads_of(layers);
  REQUIRE(heads.size() == 2 * 4 * 2);
  CHECK(heads[0].length() == 12);
  CHECK(heads[1].length() == 7);             // the second sequence, without its padding
  CHECK(identical(heads[0].k, heads[2].k));  // heads 0 and 1 share keys, 1 and 2 do not
  CHECK(!identical(heads[2].k, heads[4].k));
  CHECK(!identical(heads[0].q, heads[2].q));
  CHECK((heads[10].layer == 1 && heads[10].head == 1 && heads[10].sequence == 0));
  // Probing changes nothing, and ends.
  CHECK(identical(model.forward(tokens(), lengths, {}).value(), before));
  model.kernel(0).observe([](const auto&...) { throw Error("observed"); });
  CHECK_THROWS_WITH(model.forward(tokens(), lengths, {}), "observed");
  model.kernel(0).observe({});
  CHECK_NOTHROW(model.forward(tokens(), lengths, {}));
}

TEST_CASE("analysis: variants without queries and keys of tokens have maps, but no heads") {
  for (const std::string name : {"mean", "linformer"}) {
    TransformerConfig config = config_of(name);
    config.positions = "none";
    const int64_t keys = name == "mean" ? 12 : 5;
    if (name == "linformer") {
      config.attention_options.set("k", keys);
      config.attention_options.set("order", std::string("inputs"));
    }
    Transformer model(nn::root(DType::f64, 3), config);
    const auto layers = probe(model, tokens(), {});
    CHECK(layers[1].variant == name);
    CHECK_THROWS_AS(heads_of(layers), ConfigError);
    const Tensor W = weights(model.kernel(1), layers[1].in);
    CHECK(W.shape() == Shape{2, 4, 12, keys});
    // Weights of one query add up to 1; of mean they are equal.
    CHECK(near(sum(Variable(W), {3}).value(), Tensor::full({2, 4, 12}, 1, DType::f64), 1e-12));
    if (name == "mean") CHECK(map_shape(W.select(0, 1).select(0, 3)).effective_keys == Approx(12));
  }
}

TEST_CASE("analysis: random inputs have the norm and the correlation asked for") {
  const HeadInputs h =
      random_head({.length = 4000, .dim = 8, .norm = 3, .correlation = 0.8}, Generator(1));
  for (const Tensor& x : {h.q, h.k}) {
    const auto v = x.to_vector<double>();
    double square = 0, next = 0;
    for (size_t i = 0; i < v.size(); ++i) square += v[i] * v[i];
    for (size_t i = 8; i < v.size(); ++i) next += v[i] * v[i - 8];
    CHECK(std::sqrt(square / 4000) == Approx(3).epsilon(0.03));
    CHECK(next / square == Approx(0.8).margin(0.02));
  }
  // Scores q·k / sqrt(D) have the standard deviation norm² / D.
  const HeadInputs independent = random_head({.length = 400, .dim = 32, .norm = 4}, Generator(2));
  const auto q = independent.q.to_vector<double>(), k = independent.k.to_vector<double>();
  double square = 0;
  for (size_t i = 0; i < q.size(); i += 32)
    for (size_t j = 0; j < k.size(); j += 32) {
      const double score = std::inner_product(&q[i], &q[i] + 32, &k[j], 0.0) / std::sqrt(32.0);
      square += score * score;
    }
  CHECK(std::sqrt(square) / 400 == Approx(0.5).epsilon(0.03));
  CHECK_THROWS_AS(random_head({.correlation = 1}, Generator(1)), ConfigError);
  CHECK_THROWS_AS(random_head({.length = 0}, Generator(1)), ConfigError);
}

TEST_CASE("analysis: weights are those of the definition") {
  const int64_t N = 21;
  const Variable q(test::normal({2, N, 2, 4}, 1)), k(test::normal({2, N, 2, 4}, 2)),
      v(test::normal({2, N, 2, 4}, 3));
  const Mask mask = test::lengths({21, 9});
  for (const bool causal : {false, true}) {
    const Tensor seen = definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths});
    const auto softmax = test::make_variant("softmax", {.max_length = N, .causal = causal});
    CHECK(
        near(weights(*softmax, {q, k, v}, mask), definitions::softmax(q, k, seen).value(), 1e-12));
    const auto performer = test::make_variant("performer", {.max_length = N, .causal = causal});
    const Variable W(performer->state_dict().at("features"));
    CHECK(near(weights(*performer, {q, k, v}, mask),
               definitions::of_features(definitions::performer_features("positive", q, W),
                                        definitions::performer_features("positive", k, W), seen)
                   .value(),
               1e-10));
  }
  const auto nystrom = test::make_variant("nystrom", {.max_length = N}, [] {
    Options options("attention");
    options.set("landmarks", int64_t{5});
    return options;
  }());
  CHECK(near(weights(*nystrom, {q, k, v}), definitions::nystrom(q, k, 5, 6).value(), 1e-9));
}

TEST_CASE("analysis: the shape of a map") {
  const MapShape uniform = map_shape(Tensor::full({5, 4}, 0.25, DType::f64));
  CHECK(uniform.entropy == Approx(std::log(4)));
  CHECK(uniform.effective_keys == Approx(4));
  CHECK(uniform.largest == 0.25);
  CHECK(uniform.distance == Approx((1.5 + 1 + 1 + 1.5 + 2.5) / 5));
  Tensor one = Tensor::zeros({3, 3}, DType::f64);
  for (int64_t i = 0; i < 2; ++i) one.select(0, i).select(0, i).fill(1);  // the last row is 0
  const MapShape self = map_shape(one);
  CHECK(self.entropy == 0);
  CHECK(self.self == 1);
  CHECK(self.first == 0.5);
  CHECK(self.distance == 0);
  one.select(0, 2).select(0, 0).fill(-0.5);
  CHECK(map_shape(one).negative == Approx(1.0 / 9));
  Tensor map = Tensor::empty({4, 4}, DType::f64);
  std::iota(map.data<double>(), map.data<double>() + 16, 0.0);
  CHECK(pooled_map(map, 2).to_vector<double>() == std::vector<double>{2.5, 4.5, 10.5, 12.5});
  CHECK(identical(pooled_map(map, 9), map));
}

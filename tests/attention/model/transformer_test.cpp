#include "longhand/attention/model/transformer.h"
#include "longhand/attention/registry.h"

#include <cmath>

#include "longhand/autograd/ops.h"
#include "longhand/core/layouts.h"
#include "longhand/core/parallel.h"
#include "longhand/core/storage.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using longhand::test::library;
using longhand::test::random_tokens;

namespace {

TransformerConfig small(const std::string& variant) {
  TransformerConfig c;
  c.vocabulary = 11;
  c.classes = 5;
  c.max_length = 12;
  c.d_model = 8;
  c.heads = 2;
  c.d_mlp = 12;
  c.attention = variant;
  c.causal = capabilities(variant).causal_only;
  for (const auto& [key, value] : spec(variant).cases.front()) c.attention_options.set(key, value);
  return c;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (const double d = std::abs(x[i] - y[i]); !(d <= worst)) worst = d;
  return worst;
}

// Logits, and the gradient of every parameter for one fixed cotangent.
struct Result {
  Tensor logits;
  nn::StateDict gradients;
};
Result run(Transformer& model, const Tensor& t, const Tensor& lengths, const nn::Pass& pass = {}) {
  const Variable logits = model.forward(t, lengths, pass);
  Tensor seed = Tensor::empty(logits.shape(), logits.dtype());
  fill_normal(seed, Generator(99));
  backward(logits, seed);
  Result out{logits.value(), {}};
  for (auto& [name, p] : model.named_parameters()) out.gradients[name] = p.take_grad();
  return out;
}

}  // namespace

TEST_CASE("transformer: a padded sequence gives the logits and gradients it gives alone") {
  const std::string variant = GENERATE(from_range(library));
  const std::string pooling = GENERATE("mean", "cls", "last");
  INFO(variant << " " << pooling);
  TransformerConfig config = small(variant);
  config.pooling = pooling;
  Transformer model(nn::root(DType::f64, 1), config);
  Tensor padded = random_tokens(1, 9, 1);
  const Tensor lengths = Tensor::from<int32_t>({6}, {1});
  const Result alone = run(model, padded.slice(1, 0, 6).contiguous(), {});
  const Result with_padding = run(model, padded, lengths);
  CHECK(worst_difference(alone.logits, with_padding.logits) <= 1e-9);
  for (const auto& [name, gradient] : alone.gradients) {
    INFO(name);
    CHECK(worst_difference(gradient, with_padding.gradients.at(name)) <= 1e-8);
  }
  // The contents of padding change no bit.
  padded.slice(1, 6, 9).fill(3);
  CHECK(identical(run(model, padded, lengths).logits, with_padding.logits));
}

TEST_CASE("transformer: a sequence in a batch gives the logits it gives alone") {
  const std::string variant = GENERATE(from_range(library));
  INFO(variant);
  Transformer model(nn::root(DType::f64, 1), small(variant));
  const Tensor t = random_tokens(3, 12, 2);
  const Tensor lengths = Tensor::from<int32_t>({12, 5, 1}, {3});
  const Tensor all = run(model, t, lengths).logits;
  for (int64_t b = 0; b < 3; ++b) {
    const Tensor one =
        run(model, t.slice(0, b, b + 1).contiguous(), lengths.slice(0, b, b + 1).contiguous())
            .logits;
    CHECK(worst_difference(all.slice(0, b, b + 1), one) <= 1e-9);
  }
}

TEST_CASE("transformer: a causal model does not look ahead") {
  const std::string variant = GENERATE(from_range(library));
  if (!capabilities(variant).causal) return;
  INFO(variant);
  TransformerConfig config = small(variant);
  config.causal = config.per_token = true;
  config.classes = 11;
  config.positions = GENERATE("learned", "rotary");
  if (config.positions == "rotary" && !capabilities(variant).uses_queries_and_keys) return;
  Transformer model(nn::root(DType::f64, 1), config);
  Tensor t = random_tokens(2, 12, 3);
  const Tensor before = model.forward(t, {}, {}).value();
  t.select(1, 7).fill(0);
  t.select(1, 11).fill(10);
  const Tensor after = model.forward(t, {}, {}).value();
  CHECK(worst_difference(before.slice(1, 0, 7), after.slice(1, 0, 7)) <= 1e-12);
  CHECK(worst_difference(before.slice(1, 7, 12), after.slice(1, 7, 12)) >= 1e-6);
}

TEST_CASE("transformer: every option makes a model whose parameters all get gradients") {
  TransformerConfig config = small("softmax");
  config.norm = GENERATE("pre", "post");
  config.norm_type = GENERATE("layer_norm", "rms_norm");
  config.positions = GENERATE("learned", "sinusoidal", "rotary", "none");
  config.head_hidden = GENERATE(0, 6);
  config.embedding_norm = config.head_hidden == 6;
  config.norm_eps = config.head_hidden == 6 ? 1e-3 : 0;
  config.d_mlp = GENERATE(0, 12);
  INFO(config.norm << " " << config.norm_type << " " << config.positions << " "
                   << config.head_hidden);
  Transformer model(nn::root(DType::f32, 1), config);
  const Result result = run(model, random_tokens(2, 7, 1), {});
  CHECK(result.logits.shape() == Shape{2, 5});
  for (const auto& [name, gradient] : result.gradients) {
    INFO(name);
    REQUIRE(gradient.defined());
    double sum = 0;
    for (double g : gradient.to_vector<double>()) sum += std::abs(g);
    // The gradient of the bias of keys is 0 for softmax: it shifts all scores of a row equally.
    CHECK((sum > 0 || name.find("attention.key.bias") != std::string::npos));
    CHECK(std::isfinite(sum));
  }
}

TEST_CASE("transformer: reconstruction knows of other tokens what the last one's vector does") {
  TransformerConfig config = small("none");
  config.per_token = config.reconstruct = true;
  config.norm = GENERATE("pre", "post");
  INFO(config.norm);
  // Without attention the last vector depends on the last token alone.
  Transformer alone(nn::root(DType::f64, 1), config);
  Tensor t = random_tokens(2, 9, 1);
  const Tensor before = alone.forward(t, {}, {}).value();
  CHECK(before.shape() == Shape{2, 9, 5});
  t.slice(1, 0, 8).fill(3);
  CHECK(identical(alone.forward(t, {}, {}).value(), before));
  t.select(1, 8).fill(3);
  for (int64_t n = 0; n < 9; ++n)
    CHECK(worst_difference(alone.forward(t, {}, {}).value().select(1, n), before.select(1, n)) >
          1e-6);
  CHECK(worst_difference(before.select(1, 3), before.select(1, 4)) > 1e-6);

  config.attention = "softmax";
  Transformer model(nn::root(DType::f64, 1), config);
  const Tensor padded = random_tokens(1, 9, 1), lengths = Tensor::from<int32_t>({6}, {1});
  const Tensor logits = model.forward(padded, lengths, {}).value(),
               short_ones = model.forward(padded.slice(1, 0, 6).contiguous(), {}, {}).value();
  CHECK(worst_difference(logits.slice(1, 0, 6), short_ones) <= 1e-9);
  const Tensor rows = Tensor::from<int32_t>({2, 7}, {2});
  const Tensor some = model.forward(padded, lengths, {}, rows).value();
  CHECK(worst_difference(some.select(0, 0), logits.select(0, 0).select(0, 2)) <= 1e-12);
  for (const auto& [name, gradient] : run(model, random_tokens(2, 7, 1), {}).gradients) {
    INFO(name);
    REQUIRE(gradient.defined());
    double sum = 0;
    for (const double g : gradient.to_vector<double>()) sum += std::abs(g);
    CHECK((sum > 0 || name.find("attention.key.bias") != std::string::npos));
  }
  config.causal = true;
  Transformer causal(nn::root(DType::f64, 1), config);
  CHECK_THROWS_WITH(TransformerDecoder(causal, 1), Catch::Contains("without reconstruct"));
}

TEST_CASE("transformer: tied embeddings are one parameter with both gradients") {
  TransformerConfig config = small("softmax");
  config.per_token = true;
  config.classes = 11;
  config.tied_embeddings = true;
  Transformer tied(nn::root(DType::f64, 1), config);
  CHECK(tied.state_dict().count("head.weight") == 0);
  config.tied_embeddings = false;
  Transformer untied(nn::root(DType::f64, 1), config);
  nn::StateDict state = tied.state_dict();
  state["head.weight"] = state.at("embeddings.token.weight").clone();
  untied.load_state_dict(state);
  const Tensor t = random_tokens(2, 5, 1);
  const Result a = run(tied, t, {}), b = run(untied, t, {});
  CHECK(worst_difference(a.logits, b.logits) <= 1e-13);
  const Variable both =
      Variable(b.gradients.at("embeddings.token.weight")) + Variable(b.gradients.at("head.weight"));
  CHECK(worst_difference(a.gradients.at("embeddings.token.weight"), both.value()) <= 1e-12);
}

TEST_CASE("transformer: dropout is the same for the same pass and another for another") {
  TransformerConfig config = small("softmax");
  config.dropout = 0.3;
  Transformer model(nn::root(DType::f32, 1), config);
  const Tensor t = random_tokens(2, 7, 1);
  const nn::Pass one{true, Generator(1)}, two{true, Generator(2)};
  CHECK(identical(run(model, t, {}, one).logits, run(model, t, {}, one).logits));
  CHECK_FALSE(identical(run(model, t, {}, one).logits, run(model, t, {}, two).logits));
  CHECK(identical(run(model, t, {}).logits, run(model, t, {}).logits));
}

TEST_CASE("transformer: one thread and three give the same bits") {
  const std::string variant = GENERATE(from_range(library));
  INFO(variant);
  TransformerConfig config = small(variant);
  const int32_t N = variant == "svd" ? 60 : 600;  // at a cost of N³
  config.max_length = N;
  config.dropout = 0.1;
  Transformer model(nn::root(DType::f32, 1), config);
  const Tensor t = random_tokens(4, N, 1);
  const Tensor lengths = Tensor::from<int32_t>({N, N - 1, 1, N / 2}, {4});
  const nn::Pass pass{true, Generator(1)};
  const int before = threads();
  set_threads(1);
  const Result one = run(model, t, lengths, pass);
  set_threads(3);
  const Result three = run(model, t, lengths, pass);
  set_threads(before);
  CHECK(identical(one.logits, three.logits));
  for (const auto& [name, gradient] : one.gradients) {
    INFO(name);
    CHECK(identical(gradient, three.gradients.at(name)));
  }
}

TEST_CASE("transformer: recomputing blocks changes no bit") {
  const std::string variant = GENERATE(from_range(library));
  const bool causal = GENERATE(false, true);
  if (causal ? !capabilities(variant).causal : capabilities(variant).causal_only) return;
  CAPTURE(variant, causal);
  for (const auto& options : spec(variant).cases) {
    TransformerConfig config = small(variant);
    config.causal = causal;
    config.dropout = 0.2;
    config.attention_options = Options("attention");
    for (const auto& [key, value] : options) config.attention_options.set(key, value);
    const bool draws = capabilities(variant, config.attention_config(0)).random;
    if (draws && (variant == "performer" || variant == "rff"))
      config.attention_options.set("redraw_interval", int64_t{1});
    try {
      Transformer(nn::root(), config);
    } catch (const ConfigError&) {  // options that a causal model does not support, or only it
      REQUIRE((causal || capabilities(variant, config.attention_config(0)).causal_only));
      continue;
    }
    Transformer plain(nn::root(DType::f32, 1), config), saving(nn::root(DType::f32, 1), config);
    const Tensor t = random_tokens(3, 12, 1);
    const Tensor lengths = Tensor::from<int32_t>({12, 1, 7}, {3});
    for (uint64_t step = 0; step < 3; ++step) {
      CAPTURE(step);
      nn::Pass pass{.training = true, .random = Generator(step)};
      const Result expected = run(plain, t, lengths, pass);
      pass.recompute = true;
      const Result result = run(saving, t, lengths, pass);
      CHECK(identical(result.logits, expected.logits));
      for (const auto& [name, gradient] : expected.gradients) {
        INFO(name);
        CHECK(identical(gradient, result.gradients.at(name)));
      }
      plain.after_step();
      saving.after_step();
      CHECK(saving.metrics() == plain.metrics());
      const nn::StateDict state = saving.state_dict();
      for (const auto& [name, tensor] : plain.state_dict()) {
        INFO(name);
        CHECK(identical(tensor, state.at(name)));
      }
    }
  }
}

TEST_CASE("transformer: recomputed blocks keep their input alone") {
  TransformerConfig config = small("softmax");
  config.max_length = 2048;
  config.d_model = 64;
  config.d_mlp = 128;
  config.layers = 1;
  const auto kept = [&](bool recompute, int64_t layers) {
    config.layers = layers;
    Transformer model(nn::root(DType::f32, 1), config);
    const Tensor t = random_tokens(1, 2048, 1);
    const size_t before = memory_stats().in_use;
    const Variable logits =
        model.forward(t, {}, {.training = true, .random = Generator(1), .recompute = recompute});
    return memory_stats().in_use - before;
  };
  const size_t input = size_t{2048} * 64 * sizeof(float);
  const size_t one = kept(true, 1), four = kept(true, 4);
  CHECK(four - one >= 3 * input);
  CHECK(four - one < 3 * input + 3 * 4096);
  CHECK(kept(false, 4) - kept(false, 1) > 3 * 6 * input);
}

TEST_CASE("transformer: what cannot be is refused by name") {
  Transformer model(nn::root(), small("softmax"));
  CHECK_THROWS_WITH(model.forward(random_tokens(1, 13, 1), {}, {}),
                    Catch::Contains("13 tokens") && Catch::Contains("max_length 12"));
  CHECK_THROWS_AS(model.forward(Tensor::full({1, 3}, 11, DType::i32), {}, {}), ShapeError);
  CHECK_THROWS_AS(model.forward(Tensor::zeros({1, 3}), {}, {}), ShapeError);
  CHECK_THROWS_AS(model.forward(random_tokens(1, 3, 1), Tensor::from<int32_t>({4}, {1}), {}),
                  ShapeError);
  CHECK_THROWS_AS(model.forward(random_tokens(1, 3, 1), Tensor::from<int32_t>({0}, {1}), {}),
                  ShapeError);
  for (const char* variant : {"linformer", "nystrom"}) {
    TransformerConfig config = small(variant);
    config.causal = true;
    CHECK_THROWS_WITH(
        Transformer(nn::root(), config),
        Catch::Contains(variant) && Catch::Contains(capabilities(variant).causal_reason));
  }

  const auto refused = [](const std::string& key, OptionValue value) {
    Options section("model");
    section.set(key, std::move(value));
    TransformerConfig task;
    task.vocabulary = task.classes = 256;
    task.per_token = true;
    task.max_length = 100;
    CHECK_THROWS_WITH(TransformerConfig::read(section, Options("attention"), task),
                      Catch::Contains("model." + key));
  };
  refused("heads", int64_t{3});
  refused("d_model", int64_t{-8});
  refused("norm", std::string("middle"));
  refused("dropout", 1.5);
  refused("pooling", std::string("last"));  // in a model with logits for every token
  refused("d_modle", int64_t{8});
}

TEST_CASE("transformer: options without an effect are refused") {
  for (const std::string name : {"none", "mean", "random", "lowrank", "softmax", "linear"}) {
    INFO(name);
    Options model("model"), attention("attention");
    model.set("positions", std::string("rotary"));
    attention.set("type", name);
    const auto read = [&] { TransformerConfig::read(model, attention, small(name)); };
    TransformerConfig config = small(name);
    config.positions = "rotary";
    const auto make = [&] { Transformer(nn::root(), config); };
    if (capabilities(name).uses_queries_and_keys) {
      CHECK_NOTHROW(read());
      CHECK_NOTHROW(make());
      continue;
    }
    CHECK_THROWS_WITH(read(), Catch::Contains("model.positions") && Catch::Contains(name) &&
                                  Catch::Contains("no effect") && Catch::Contains("learned"));
    CHECK_THROWS_WITH(make(), Catch::Contains("rotary") && Catch::Contains(name));
  }
  Options model("model");
  model.set("pooling", std::string("mean"));
  const auto read = [&](bool per_token) {
    TransformerConfig task = small("softmax");
    task.per_token = per_token;
    return TransformerConfig::read(model, Options("attention"), task);
  };
  CHECK(read(false).pooling == "mean");
  CHECK_THROWS_WITH(read(true), Catch::Contains("model.pooling") && Catch::Contains("mean") &&
                                    Catch::Contains("only with per_token = false"));
}

TEST_CASE("transformer: every parameter of every variant gets a gradient") {
  for (const std::string& name : library) {
    INFO(name);
    TransformerConfig config = small(name);
    config.causal = capabilities(name).causal;
    Transformer model(nn::root(DType::f32, 1), config);
    const Result result = run(model, random_tokens(2, 7, 1), {});
    for (const auto& [parameter, gradient] : result.gradients) {
      INFO(parameter);
      CHECK(gradient.defined());
    }
    const bool projects = model.state_dict().count("blocks.0.attention.query.weight") > 0;
    CHECK(projects == capabilities(name).uses_queries_and_keys);
    const bool keys = model.state_dict().count("blocks.0.attention.key.weight") > 0;
    CHECK(keys == (projects && capabilities(name).uses_keys));
  }
}

TEST_CASE("transformer: lengths of any strides") {
  for (const char* pooling : {"mean", "last", "cls"}) {
    TransformerConfig config = small("skyformer");
    config.attention_options.set("landmarks", int64_t{4});
    config.pooling = pooling;
    Transformer model(nn::root(DType::f64, 1), config);
    const Tensor t = random_tokens(3, 7, 1);
    for (const Layout layout : all_layouts()) {
      INFO(pooling << " " << to_string(layout));
      const Tensor lengths = with_layout(Tensor::from<int32_t>({3, 7, 5}, {3}), layout);
      const NoGrad no_grad;
      CHECK(identical(model.forward(t, lengths, {}).value(),
                      model.forward(t, lengths.contiguous(), {}).value()));
    }
  }
}

TEST_CASE("transformer: the head may read some tokens alone") {
  TransformerConfig config = small("linear");
  config.per_token = true;
  Transformer model(nn::root(DType::f64, 1), config);
  const Tensor t = random_tokens(2, 7, 1), rows = Tensor::from<int32_t>({0, 6, 7, 12}, {4});
  const Tensor all = model.forward(t, {}, {}).value().reshape({14, 5});
  const Variable some = model.forward(t, {}, {}, rows);
  REQUIRE(some.shape() == Shape{4, 5});
  for (int64_t i = 0; i < 4; ++i)
    CHECK(worst_difference(some.value().select(0, i), all.select(0, rows.data<int32_t>()[i])) <=
          1e-13);
  config.per_token = false;
  Transformer classifier(nn::root(DType::f64, 1), config);
  CHECK_THROWS_AS(classifier.forward(t, {}, {}, rows), ShapeError);
}

TEST_CASE("transformer: token by token gives the logits of the whole sequence") {
  const std::string variant =
      GENERATE(as<std::string>(), "softmax", "performer", "linear", "rff", "gaussian");
  const std::string positions =
      GENERATE(as<std::string>(), "learned", "sinusoidal", "rotary", "none");
  const std::string norm = GENERATE(as<std::string>(), "pre", "post");
  INFO(variant << " " << positions << " " << norm);
  TransformerConfig config = small(variant);
  config.causal = config.per_token = true;
  config.positions = positions;
  config.norm = norm;
  config.heads = 4;
  config.kv_heads = 2;
  config.d_model = 16;
  config.d_mlp = norm == "pre" ? 12 : 0;
  config.tied_embeddings = false;
  const int64_t B = 2, N = config.max_length;
  Transformer model(nn::root(DType::f64, 1), config);
  const Tensor t = random_tokens(B, N, 3);
  const Tensor all = model.forward(t, {}, {}).value();
  TransformerDecoder decoder(model, B);
  for (int64_t i = 0; i < N; ++i) {
    CHECK(decoder.position() == i);
    const Tensor logits = decoder.step(t.select(1, i).contiguous());
    CHECK(worst_difference(logits, all.select(1, i).contiguous()) <= 1e-10);
  }
  CHECK(decoder.bytes() > 0);
  CHECK_THROWS_AS(decoder.step(t.select(1, 0).contiguous()), ShapeError);

  TransformerDecoder reader(model, B);
  CHECK(worst_difference(reader.read(t.slice(1, 0, 2)), all.select(1, 1).contiguous()) <= 1e-10);
  CHECK(reader.position() == 2);
  CHECK(worst_difference(reader.read(t.slice(1, 2, N)), all.select(1, N - 1).contiguous()) <=
        1e-10);
  CHECK_THROWS_AS(TransformerDecoder(model, B).read(random_tokens(B, N + 1, 3)), ShapeError);
  CHECK_THROWS_AS(TransformerDecoder(model, B).read(random_tokens(B + 1, N, 3)), ShapeError);
  CHECK_THROWS_AS(reader.read(t), ShapeError);
}

TEST_CASE("transformer: what does not go token by token is refused") {
  TransformerConfig config = small("linear");
  const auto decoder_of = [](const TransformerConfig& c) {
    Transformer model(nn::root(), c);
    TransformerDecoder(model, 1);
  };
  CHECK_THROWS_AS(decoder_of(config), ConfigError);
  config.per_token = true;
  CHECK_THROWS_AS(decoder_of(config), ConfigError);
  config.causal = true;
  CHECK_NOTHROW(decoder_of(config));
  Transformer model(nn::root(), config);
  TransformerDecoder decoder(model, 2);
  CHECK_THROWS_AS(decoder.step(random_tokens(1, 1, 1).select(1, 0).contiguous()), ShapeError);
}

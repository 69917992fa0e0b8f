// What a model puts around every variant: short convolutions, norms and gates.
#include <cmath>

#include "longhand/attention/model/transformer.h"
#include "longhand/core/parallel.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

Surroundings everything() {
  return {.short_conv = 4, .qk_norm = "rms_norm", .head_norm = "layer_norm", .output_gate = "silu"};
}

// Each option alone, and all together.
std::vector<Surroundings> each_option() {
  return {{.short_conv = 3},           {.qk_norm = "l2"},
          {.qk_norm = "rms_norm"},     {.head_norm = "rms_norm"},
          {.head_norm = "layer_norm"}, {.output_gate = "sigmoid"},
          {.output_gate = "silu"},     everything()};
}

TransformerConfig small_within(const std::string& variant, const Surroundings& around) {
  TransformerConfig c;
  c.vocabulary = 11;
  c.classes = 5;
  c.max_length = 12;
  c.d_model = 8;
  c.d_mlp = 0;
  c.layers = 1;
  c.attention = variant;
  c.around = around;
  if (!capabilities(variant).uses_queries_and_keys) c.around.qk_norm = "none";
  c.attention_options = small_options(variant);
  c.causal = capabilities(variant).causal_only;
  return c;
}

TransformerConfig causal(const std::string& variant, const Surroundings& around) {
  TransformerConfig c = small_within(variant, around);
  c.causal = c.per_token = true;
  return c;
}

// Logits, and the gradient of every parameter for one cotangent.
std::map<std::string, Tensor> results(Transformer& model, const Tensor& t, const Tensor& lengths) {
  const Variable logits = model.forward(t, lengths, {});
  backward(logits, normal(logits.shape(), 9, logits.dtype()));
  std::map<std::string, Tensor> out{{"", logits.value()}};
  for (auto& [name, p] : model.named_parameters()) out[name] = p.take_grad();
  return out;
}

}  // namespace

TEST_CASE("surroundings: padding does not enter, for every variant") {
  const std::string variant = GENERATE(from_range(library));
  CAPTURE(variant);
  Transformer model(nn::root(DType::f64, 1), small_within(variant, everything()));
  Tensor padded = random_tokens(2, 9, 1);
  const Tensor lengths = Tensor::from<int32_t>({6, 9}, {2});
  const auto together = results(model, padded, lengths);
  const auto alone = results(model, padded.slice(0, 0, 1).slice(1, 0, 6).contiguous(), {});
  CHECK(near(together.at("").slice(0, 0, 1), alone.at(""), 1e-9));
  padded.select(0, 0).slice(0, 6, 9).fill(3);
  for (const auto& [name, tensor] : results(model, padded, lengths)) {
    CAPTURE(name);
    CHECK(identical(tensor, together.at(name)));
  }
}

TEST_CASE("surroundings: later tokens change no bit of a causal model") {
  for (const std::string& variant : library) {
    if (!capabilities(variant).causal) continue;
    CAPTURE(variant);
    Transformer model(nn::root(DType::f32, 1), causal(variant, everything()));
    Tensor t = random_tokens(2, 12, 3);
    const Tensor before = model.forward(t, {}, {}).value().slice(1, 0, 7).contiguous();
    t.slice(1, 7, 12).fill(4);
    CHECK(identical(model.forward(t, {}, {}).value().slice(1, 0, 7).contiguous(), before));
  }
}

TEST_CASE("surroundings: token by token gives the rows of the whole sequence") {
  for (const std::string& variant : library)
    for (const Surroundings& around : each_option()) {
      if (!capabilities(variant).decodes || (variant != "softmax" && around.short_conv != 4))
        continue;
      CAPTURE(variant, around.short_conv, around.qk_norm, around.head_norm, around.output_gate);
      TransformerConfig config = causal(variant, around);
      config.layers = 2;
      config.heads = 4;
      config.kv_heads = 2;
      config.positions =
          capabilities(variant).uses_queries_and_keys && around.qk_norm != "l2" ? "rotary" : "none";
      Transformer model(nn::root(DType::f64, 1), config);
      const Tensor t = random_tokens(2, 12, 3), whole = model.forward(t, {}, {}).value();
      TransformerDecoder decoder(model, 2);
      double worst = 0;
      for (int64_t i = 0; i < 12; ++i)
        worst = std::max(worst, distance(decoder.step(t.select(1, i).contiguous()),
                                         whole.select(1, i).contiguous()));
      CHECK(worst <= 1e-10);
      // The first tokens at once.
      TransformerDecoder reader(model, 2);
      worst = distance(reader.read(t.slice(1, 0, 7)), whole.select(1, 6).contiguous());
      for (int64_t i = 7; i < 12; ++i)
        worst = std::max(worst, distance(reader.step(t.select(1, i).contiguous()),
                                         whole.select(1, i).contiguous()));
      CHECK(worst <= 1e-10);
      CHECK(reader.bytes() == decoder.bytes());
    }
}

TEST_CASE("surroundings: gradients of every option") {
  for (const Surroundings& around : each_option())
    for (const bool is_causal : {false, true}) {
      CAPTURE(around.short_conv, around.qk_norm, around.head_norm, around.output_gate, is_causal);
      TransformerConfig config = small_within("softmax", around);
      config.causal = is_causal;
      config.kv_heads = 1;
      config.positions = "rotary";
      Transformer model(nn::root(DType::f64, 1), config);
      // Initial embeddings are small, and norms of small numbers too curved for differences.
      copy_into(model.state_dict().at("embeddings.token.weight"), normal({11, 8}, 5));
      const Tensor t = random_tokens(2, 6, 1), lengths = Tensor::from<int32_t>({6, 4}, {2});
      check_parameters(model, [&] { return model.forward(t, lengths, {}); });
    }
}

TEST_CASE("surroundings: one thread and three give the same bits") {
  TransformerConfig config = small_within("linear", everything());
  config.max_length = 600;
  Transformer model(nn::root(DType::f32, 1), config);
  const Tensor t = random_tokens(3, 600, 1), lengths = Tensor::from<int32_t>({600, 599, 77}, {3});
  const int before = threads();
  set_threads(1);
  const auto one = results(model, t, lengths);
  set_threads(3);
  const auto three = results(model, t, lengths);
  set_threads(before);
  for (const auto& [name, tensor] : one) {
    CAPTURE(name);
    CHECK(identical(tensor, three.at(name)));
  }
}

TEST_CASE("surroundings: what each option computes") {
  const auto layer = [](const Surroundings& around) {
    return std::make_unique<MultiHeadAttention>(nn::root(DType::f64, 3), "none",
                                                Config{.heads = 2, .head_dim = 3}, false,
                                                ProjectionRanks{}, around);
  };
  const Variable x(normal({2, 5, 6}, 1));
  // With the variant "none", the result of attention is v.
  const auto plain = layer({});
  nn::StateDict state = plain->state_dict();
  const auto linear_of = [&](const nn::StateDict& s, const std::string& name, const Variable& in) {
    return linear(in, Variable(s.at(name + ".weight")), Variable(s.at(name + ".bias")));
  };
  const Variable v = linear_of(state, "value", x);
  CHECK(near(plain->forward(x, {}, {}).value(), linear_of(state, "output", v).value(), 1e-14));
  const auto normed = layer({.head_norm = "rms_norm"});
  const Variable heads = rms_norm(reshape(v, {2, 5, 2, 3}), {});
  CHECK(near(normed->forward(x, {}, {}).value(),
             linear_of(state, "output", reshape(heads, {2, 5, 6})).value(), 1e-14));
  for (const std::string gate : {"silu", "sigmoid"}) {
    const auto gated = layer({.output_gate = gate});
    const Variable g = linear_of(gated->state_dict(), "gate", x);
    CHECK(near(gated->forward(x, {}, {}).value(),
               linear_of(state, "output",
                         v * sigmoid(g) *
                             (gate == "silu" ? g : Variable(Tensor::full({1}, 1, DType::f64))))
                   .value(),
               1e-14));
  }
  // Queries and keys of norm 1, and with an RMS norm of norm sqrt(D).
  for (const std::string norm : {"l2", "rms_norm"}) {
    MultiHeadAttention attends(nn::root(DType::f64, 3), "softmax", {.heads = 2, .head_dim = 3},
                               false, {}, {.qk_norm = norm});
    int64_t seen = 0;
    attends.kernel().observe([&](const Inputs& in, const Mask&, const Variable&) {
      for (const Variable& each : {in.q, in.k}) {
        const Tensor squares = sum(square(each), {3}).value();
        for (const double s : squares.to_vector<double>())
          CHECK(s == Approx(norm == "l2" ? 1 : 3).epsilon(1e-4));
        ++seen;
      }
    });
    attends.forward(x, {}, {});
    CHECK(seen == 2);
  }
}

TEST_CASE("surroundings: positions = alibi is the option bias of the layers that have it") {
  TransformerConfig with_positions = causal("softmax", {}), with_bias = with_positions;
  with_positions.positions = "alibi";
  with_bias.positions = "none";
  with_bias.attention_options.set("bias", std::string("alibi"));
  Transformer a(nn::root(DType::f64, 1), with_positions), b(nn::root(DType::f64, 1), with_bias);
  const Tensor t = random_tokens(2, 12, 1);
  const Tensor logits = a.forward(t, {}, {}).value();
  CHECK(identical(logits, b.forward(t, {}, {}).value()));
  with_bias.attention_options.set("bias", std::string("none"));
  Transformer without(nn::root(DType::f64, 1), with_bias);
  CHECK(!near(logits, without.forward(t, {}, {}).value(), 1e-6));
  CHECK(with_positions.check_attention().at("bias").value == OptionValue(std::string("alibi")));
}

TEST_CASE("surroundings: off by default, and names of parameters") {
  const auto names_of_model = [](const Surroundings& around) {
    std::vector<std::string> names;
    for (const auto& [name, p] :
         Transformer(nn::root(), small_within("softmax", around)).named_parameters())
      if (name.starts_with("blocks.0.attention.")) names.push_back(name.substr(19));
    return names;
  };
  const std::vector<std::string> none = names_of_model({}), all = names_of_model(everything());
  CHECK(none == std::vector<std::string>{"query.weight", "query.bias", "key.weight", "key.bias",
                                         "value.weight", "value.bias", "output.weight",
                                         "output.bias"});
  for (const char* name :
       {"query_conv.weight", "key_conv.weight", "value_conv.weight", "query_norm.weight",
        "key_norm.weight", "head_norm.weight", "head_norm.bias", "gate.weight", "gate.bias"}) {
    CAPTURE(name);
    CHECK(std::count(all.begin(), all.end(), name) == 1);
  }
  CHECK(all.size() == none.size() + 9);
}

TEST_CASE("surroundings: what has no effect or no meaning is refused") {
  const auto read = [](const Settings& model, const std::vector<std::string>& types,
                       const Settings& more = {}) {
    Options section("model"), attention("attention");
    for (const auto& [key, value] : model) section.set(key, value);
    attention.set("type", types);
    for (const auto& [key, value] : more) attention.set(key, value);
    TransformerConfig task = small_within("softmax", {});
    task.layers = static_cast<int64_t>(types.size());
    const TransformerConfig config = TransformerConfig::read(section, attention, task);
    config.check_attention();
    Transformer(nn::root(), config);
  };
  for (const char* option : {"positions", "qk_norm"}) {
    CAPTURE(option);
    const Settings model{{option, std::string(*option == 'p' ? "rotary" : "l2")}};
    CHECK_NOTHROW(read(model, {"softmax"}));
    CHECK_THROWS_WITH(read(model, {"mean"}), Catch::Contains("model." + std::string(option)) &&
                                                 Catch::Contains("mean") &&
                                                 Catch::Contains("no effect"));
    CHECK_THROWS_WITH(read(model, {"mean", "none"}), Catch::Contains("no effect"));
    // Some layers have queries and keys.
    CHECK_NOTHROW(read(model, {"mean", "softmax"}));
    TransformerConfig made = small_within("mean", {});
    (*option == 'p' ? made.positions : made.around.qk_norm) = *option == 'p' ? "rotary" : "l2";
    CHECK_THROWS_WITH(Transformer(nn::root(), made),
                      Catch::Contains("model." + std::string(option)));
  }
  const Settings alibi{{"positions", std::string("alibi")}};
  CHECK_NOTHROW(read(alibi, {"softmax"}));
  CHECK_NOTHROW(read(alibi, {"linear", "softmax"}));
  CHECK_THROWS_WITH(read(alibi, {"linear"}), Catch::Contains("model.positions") &&
                                                 Catch::Contains("linear") &&
                                                 Catch::Contains("no effect"));
  CHECK_THROWS_WITH(read(alibi, {"softmax"}, {{"bias", std::string("none")}}),
                    Catch::Contains("attention.bias") && Catch::Contains("contradicts"));
  CHECK_THROWS_WITH(
      read({{"short_conv", int64_t{4}}}, {"linformer"},
           {{"order", std::string("inputs")}, {"k", int64_t{4}}}),
      Catch::Contains("linformer") && Catch::Contains("short_conv") && Catch::Contains("mixtures"));
  CHECK_THROWS_WITH(read({{"short_conv", int64_t{-1}}}, {"softmax"}),
                    Catch::Contains("short_conv"));
  CHECK_THROWS_WITH(read({{"output_gate", std::string("relu")}}, {"softmax"}),
                    Catch::Contains("silu") && Catch::Contains("sigmoid"));
}

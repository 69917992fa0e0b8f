#include "longhand/attention/model/transformer.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

std::unique_ptr<Variant> parallel(const std::string& parts, const Made& made = {},
                                  std::vector<int64_t> heads = {0}) {
  return make_variant("parallel", made,
                      options_of({{"parts", parts}, {"heads", std::move(heads)}}));
}

}  // namespace

TEST_CASE("parallel: each part computes its heads, with its options and parameters") {
  const bool causal = GENERATE(false, true);
  const Made made{.heads = 4, .causal = causal};
  const auto both = parallel(" window( window = 3 ) | linear(feature_map=hedgehog) ", made, {1, 3});
  const Operands x({2, 13, 4, 4});
  const Mask mask = lengths({13, 7});
  const auto window =
      make_variant("window", {.heads = 1, .causal = causal}, options_of({{"window", int64_t{3}}}));
  const auto linear = make_variant("linear", {.heads = 3, .causal = causal},
                                   options_of({{"feature_map", std::string("hedgehog")}}));
  nn::StateDict state;
  for (const auto& [name, tensor] : linear->state_dict()) {
    copy_into(linear->state_dict().at(name), normal(tensor.shape(), 7));
    state["1." + name] = tensor;
  }
  both->load_state_dict(state);
  const Outcome all = run_variant(*both, x, mask);
  const auto part = [&](Variant& variant, int64_t first, int64_t last) {
    const auto of = [&](const Tensor& t) { return t.slice(2, first, last); };
    const Outcome alone = run_variant(variant, of(x.q), of(x.k), of(x.v), mask, of(x.cotangent));
    CHECK(near(of(all.out), alone.out, 1e-13));
    CHECK(near(of(all.dq), alone.dq, 1e-12));
    CHECK(near(of(all.dk), alone.dk, 1e-12));
    CHECK(near(of(all.dv), alone.dv, 1e-12));
  };
  part(*window, 0, 1);
  part(*linear, 1, 4);
  CHECK(both->work(64, 64).forward.flops ==
        window->work(64, 64).forward.flops + linear->work(64, 64).forward.flops);
  if (causal) CHECK(both->state_bytes(9) == window->state_bytes(9) + linear->state_bytes(9));
}

TEST_CASE("parallel: capabilities are those that all parts have") {
  const auto can = [](const std::string& parts) {
    Config config{.heads = 4, .head_dim = 4, .max_length = 16};
    config.options = options_of({{"parts", parts}});
    return capabilities("parallel", config);
  };
  CHECK(can("softmax|softmax").exact);
  CHECK(!can("softmax|linear").exact);
  CHECK(can("softmax|performer").random);
  CHECK(!can("mean|none").uses_queries_and_keys);
  CHECK(can("mean|softmax").uses_queries_and_keys);
  CHECK(can("mean|conv").uses_x);
  CHECK(!can("softmax|nystrom").causal);
  CHECK(can("softmax|nystrom").causal_reason.starts_with("nystrom: "));
}

TEST_CASE("parallel: what cannot be is refused by name") {
  const auto message = [](const std::string& parts, const Made& made = {},
                          std::vector<int64_t> heads = {0}) -> std::string {
    try {
      parallel(parts, made, std::move(heads));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message("softmax|linear").empty());
  CHECK_THAT(message("softmax|linaer"), Catch::Contains("did you mean \"linear\""));
  CHECK_THAT(message("softmax||linear"), Catch::Contains("expected a variant"));
  CHECK_THAT(message("window(window=3|linear"), Catch::Contains("parentheses"));
  CHECK_THAT(message("window(3)|linear"), Catch::Contains("\"3\"") && Catch::Contains("window=16"));
  CHECK_THAT(message("softmax|window(windw=3)"), Catch::Contains("part 1 (window)") &&
                                                     Catch::Contains("windw") &&
                                                     Catch::Contains("did you mean window"));
  CHECK_THAT(message("window(window=x)|linear"), Catch::Contains("part 0 (window)"));
  CHECK_THAT(message("linformer(order=inputs, k=4)|softmax"),
             Catch::Contains("part 0 (linformer)"));
  CHECK_THAT(message("softmax|nystrom", {.causal = true}),
             Catch::Contains("causal attention is impossible"));
  CHECK_THAT(message("softmax|linear", {}, {3, 1}), Catch::Contains("2"));
  CHECK_THAT(message("softmax|linear", {}, {2}), Catch::Contains("for each of the 2 variants"));
  // Known before anything is constructed.
  TransformerConfig config{.vocabulary = 7, .classes = 7, .max_length = 9};
  config.attention = "parallel";
  config.attention_options = options_of({{"parts", std::string("softmax|linear|mean")}});
  CHECK_THROWS_WITH(config.check_attention(),
                    Catch::Contains("3 variants") && Catch::Contains("model.heads = 2"));
}

TEST_CASE("parallel: a model decodes token by token, also with shared key heads and gates") {
  TransformerConfig config{.vocabulary = 7, .classes = 7, .per_token = true, .max_length = 9};
  config.d_model = 16;
  config.heads = 4;
  config.kv_heads = 2;
  config.causal = true;
  config.attention = "parallel";
  config.positions = "rotary";
  config.around.short_conv = 3;
  config.attention_options = options_of(
      {{"parts", std::string("softmax|linear|conv")}, {"heads", std::vector<int64_t>{1, 2, 1}}});
  Transformer model(nn::root(DType::f64, 1), config);
  CHECK(model.state_dict().contains("blocks.1.attention.kernel.2.filter"));
  const Tensor t = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 0, 1, 2}, {1, 9});
  const Tensor whole = model.forward(t, {}, {}).value();
  TransformerDecoder decoder(model, 1);
  for (int64_t i = 0; i < 9; ++i)
    CHECK(near(decoder.step(t.select(1, i).contiguous()), whole.select(1, i), 1e-12));
}

// Models whose linear layers have low rank.
#include "longhand/attention/model/transformer.h"

#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

namespace {

TransformerConfig small_of_rank(const std::string& variant, const std::vector<int64_t>& ranks) {
  TransformerConfig c;
  c.vocabulary = c.classes = 11;
  c.max_length = 12;
  c.d_model = 8;
  c.heads = 4;
  c.kv_heads = 2;
  c.d_mlp = 12;
  c.causal = c.per_token = true;
  c.attention = variant;
  c.low_rank = ranks;
  return c;
}

/// The numbers in the weights of the linear layers of the blocks.
int64_t weights_of(Transformer& model) {
  int64_t count = 0;
  for (const auto& [name, tensor] : model.state_dict())
    if (name.find(".weight") != std::string::npos && name.starts_with("blocks.") &&
        tensor.rank() == 2)
      count += tensor.numel();
  return count;
}

TransformerConfig read(const std::string& key, OptionValue value) {
  Options model("model");
  for (const auto& [name, size] : {std::pair{"d_model", 8},
                                   {"heads", 4},
                                   {"kv_heads", 2},
                                   {"d_mlp", 12},
                                   {"layers", 2},
                                   {"max_length", 4}})
    model.set(name, int64_t{size});
  model.set(key, std::move(value));
  return TransformerConfig::read(model, Options("attention"), small_of_rank("softmax", {0}));
}

}  // namespace

TEST_CASE("low rank: one rank for all layers, or a list in the documented order") {
  const std::vector<int64_t> list{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 1};
  Transformer model(nn::root(), small_of_rank("softmax", list));
  const auto state = model.state_dict();
  CHECK(state.at("blocks.0.attention.query.weight_in").shape() == Shape{1, 8});
  CHECK(state.at("blocks.0.attention.key.weight_out").shape() == Shape{4, 2});
  CHECK(state.at("blocks.0.attention.value.weight_in").shape() == Shape{3, 8});
  CHECK(state.at("blocks.0.attention.output.weight_in").shape() == Shape{4, 8});
  CHECK(state.at("blocks.0.mlp.fc1.weight_out").shape() == Shape{12, 5});
  CHECK(state.at("blocks.0.mlp.fc2.weight_in").shape() == Shape{6, 12});
  CHECK(state.at("blocks.1.mlp.fc1.weight").shape() == Shape{12, 8});
  CHECK(state.at("blocks.1.mlp.fc2.weight_in").shape() == Shape{1, 12});

  Transformer same(nn::root(), small_of_rank("softmax", {3}));
  CHECK(same.state_dict().at("blocks.1.attention.key.weight_in").shape() == Shape{3, 8});
  // The ranks of queries and keys have no effect on a variant without them.
  Transformer mean(nn::root(), small_of_rank("mean", list));
  CHECK_FALSE(mean.state_dict().contains("blocks.0.attention.query.weight_in"));
  for (Transformer* each : {&model, &same, &mean}) {
    int64_t weights = 0;
    for (const LinearLayer& layer : each->config().linear_layers()) {
      CHECK(each->state_dict().contains(layer.name + (layer.rank ? ".weight_in" : ".weight")));
      weights += layer.weights();
    }
    CHECK(weights == weights_of(*each));
  }
}

TEST_CASE("low rank: decoding gives the rows of the whole sequence, and recomputation its bits") {
  Transformer model(nn::root(DType::f64, 1), small_of_rank("linear", {2}));
  const int64_t N = 12;
  Tensor tokens = Tensor::empty({2, N}, DType::i32);
  for (int64_t i = 0; i < 2 * N; ++i) tokens.data<int32_t>()[i] = static_cast<int32_t>(i * i % 11);
  const Tensor all = model.forward(tokens, {}, {}).value();
  TransformerDecoder decoder(model, 2);
  for (int64_t t = 0; t < N; ++t)
    CHECK(near(decoder.step(tokens.select(1, t).contiguous()), all.select(1, t), 1e-12));
  nn::Pass pass = nn::Pass::train(Generator(1));
  pass.recompute = true;
  CHECK(identical(model.forward(tokens, {}, pass).value(), all));
}

TEST_CASE("low rank: invalid ranks are refused") {
  CHECK(read("low_rank", int64_t{4}).low_rank == std::vector<int64_t>{4});
  CHECK(read("low_rank", std::vector<int64_t>{8, 4, 4, 8, 8, 8, 0, 0, 0, 0, 0, 0})
            .rank_of(0, BlockLinear::fc2) == 8);
  CHECK_THROWS_WITH(read("low_rank", int64_t{5}),
                    Catch::Contains("model.low_rank = 5") &&
                        Catch::Contains("exceeds the sizes of blocks.0.attention.key, 8 and 4"));
  CHECK_THROWS_WITH(read("low_rank", std::vector<int64_t>{1, 2, 3}),
                    Catch::Contains("one for each of the 12 linear layers"));
  CHECK_THROWS_WITH(read("low_rank", std::vector<int64_t>{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0}),
                    Catch::Contains("blocks.1.mlp.fc1, 8 and 12"));
  CHECK_THROWS_AS(read("low_rank", int64_t{-1}), ConfigError);
  CHECK_THROWS_AS(Transformer(nn::root(), small_of_rank("softmax", {1, 2})), ConfigError);
}

#include "longhand/attention/model/transformer.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

TEST_CASE("conv: a filter of the values times a gate of the tokens") {
  const bool causal = GENERATE(false, true);
  const int64_t width = GENERATE(1, 4, 5);
  CAPTURE(causal, width);
  const auto variant =
      make_variant("conv", {.causal = causal}, options_of({{"width", OptionValue(width)}}));
  const Tensor v = normal({2, 11, 2, 4}, 1), x = normal({2, 11, 8}, 2);
  const Mask mask = lengths({11, 6});
  const Tensor out = variant->forward({{}, {}, Variable(v), Variable(x)}, mask, {}).value();
  const Tensor filter = variant->state_dict().at("filter"),
               W = variant->state_dict().at("gate.weight"),
               b = variant->state_dict().at("gate.bias");
  copy_into(variant->state_dict().at("gate.bias"), normal({8}, 3));
  const Tensor again = variant->forward({{}, {}, Variable(v), Variable(x)}, mask, {}).value();
  CHECK(!near(out, again, 1e-3));
  for (const auto& [s, n] : std::vector<std::pair<int64_t, int64_t>>{{0, 11}, {1, 6}})
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < 8; ++c) {
        double gate = b.at({c}), sum = 0;
        for (int64_t e = 0; e < 8; ++e) gate += W.at({c, e}) * x.at({s, i, e});
        for (int64_t j = 0; j < width; ++j) {
          const int64_t from = i + j - (width - 1);
          if (0 <= from && from < n) sum += filter.at({c, j}) * v.at({s, from, c / 4, c % 4});
        }
        CHECK(again.at({s, i, c / 4, c % 4}) == Approx(gate * sum).margin(1e-13));
      }
}

TEST_CASE("conv: a layer among others, with rotary positions for those with queries and keys") {
  TransformerConfig config{.vocabulary = 7, .classes = 7, .per_token = true, .max_length = 9};
  config.d_model = 8;
  config.causal = true;
  Options model("model"), attention("attention");
  model.set("positions", std::string("rotary"));
  attention.set("type", std::vector<std::string>{"conv", "softmax"});
  attention.set("0.width", int64_t{3});
  const TransformerConfig mixed = TransformerConfig::read(model, attention, config);
  CHECK_NOTHROW(mixed.check_attention());
  Transformer hybrid(nn::root(DType::f64, 1), mixed);
  CHECK(hybrid.state_dict().at("blocks.0.attention.kernel.filter").shape() == Shape{8, 3});
  const Tensor t = Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 0, 1, 2}, {1, 9});
  const Tensor whole = hybrid.forward(t, {}, {}).value();
  TransformerDecoder decoder(hybrid, 1);
  for (int64_t i = 0; i < 9; ++i)
    CHECK(near(decoder.step(t.select(1, i).contiguous()), whole.select(1, i), 1e-12));
}

#include "longhand/attention/bases/masked_softmax.h"
#include "longhand/attention/definitions/definitions.h"
#include "tests/attention/attention_check.h"

using namespace longhand;
using namespace longhand::attention;
using namespace longhand::test;

TEST_CASE("synthesizer: weights are a softmax of scores of each token, or of positions") {
  const std::string kind = GENERATE(as<std::string>(), "dense", "random");
  const bool causal = GENERATE(false, true);
  const int64_t N = GENERATE(1, 7, 40);
  const auto n = static_cast<int32_t>(N);
  const Mask mask = GENERATE_COPY(Mask{}, lengths({n, (n + 1) / 2}));
  INFO(kind << " causal " << causal << " N " << N);
  const auto variant = make_variant("synthesizer", {.max_length = 45, .causal = causal},
                                    options_of({{"kind", kind}}));
  const nn::StateDict state = variant->state_dict();
  const Variable x(normal({2, N, 8}, 1)), v(normal({2, N, 2, 4}, 3));
  Variable scores;
  if (kind == "dense") {
    copy_into(variant->state_dict().at("bias"), normal({2, 45}, 6));
    const Variable u =
        relu(linear(x, Variable(state.at("hidden.weight")), Variable(state.at("hidden.bias"))));
    const Variable heads = transpose(reshape(u, {2, N, 2, 4}), 1, 2);
    scores = matmul(heads, transpose(Variable(state.at("weight").slice(1, 0, N)), 1, 2)) +
             unsqueeze(Variable(state.at("bias").slice(1, 0, N)), 1);
  } else {
    scores = Variable(state.at("scores").slice(1, 0, N).slice(2, 0, N));
  }
  const Tensor seen = definitions::visible(N, N, {.causal = causal, .lengths = mask.lengths});
  const Tensor expected = definitions::apply(softmax(masked_scores(seen, scores)), v).value();
  const Variable out = variant->forward({{}, {}, v, kind == "dense" ? x : Variable()}, mask, {});
  CHECK(near(out.value(), expected, 1e-13));
}

TEST_CASE("synthesizer: longer sequences than max_length are refused, decoded too") {
  for (const char* kind : {"dense", "random"}) {
    const auto variant = make_variant("synthesizer", {.max_length = 3, .causal = true},
                                      options_of({{"kind", kind}}));
    const Tensor x = normal({1, 4, 2, 4}, 1), row = normal({1, 2, 4}, 1);
    CHECK_THROWS_WITH(forward(*variant, x, x, x), Catch::Contains("max_length = 3"));
    const auto decoder = variant->decoder(1);
    const auto token = attention::conformance::token_of(*variant, row, row, row);
    for (int i = 0; i < 3; ++i) decoder->step(token);
    CHECK_THROWS_WITH(decoder->step(token), Catch::Contains("max_length = 3"));
  }
  CHECK_THROWS_WITH(
      make_variant("synthesizer", {}, options_of({{"kind", "random"}, {"hidden", int64_t{3}}})),
      Catch::Contains("dense"));
}

// A training loop must give the model a new generator at every step.
#include "longhand/attention/model/transformer.h"
#include "tests/core/random_view.h"
#include "tests/support/catch.h"

using namespace longhand;

namespace {

attention::TransformerConfig shape() {
  return {.vocabulary = 9, .classes = 3, .max_length = 12, .d_model = 8, .d_mlp = 8};
}

Tensor some_tokens() {
  return Tensor::from<int32_t>({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4}, {1, 12});
}

}  // namespace

TEST_CASE("a model with dropout trains with other masks at every step, or not at all") {
  attention::TransformerConfig config = shape();
  config.dropout = 0.5;
  attention::Transformer model(nn::root(), config);
  const auto logits = [&](const nn::Pass& pass) {
    return model.forward(some_tokens(), {}, pass).value();
  };
  CHECK_THROWS_WITH(logits({.training = true}), Catch::StartsWith("embeddings.dropout: ") &&
                                                    Catch::Contains("nn::Pass::train"));
  const Generator random(1);
  CHECK(
      identical(logits(nn::Pass::train(random.fork(0))), logits(nn::Pass::train(random.fork(0)))));
  CHECK_FALSE(
      identical(logits(nn::Pass::train(random.fork(0))), logits(nn::Pass::train(random.fork(1)))));
  CHECK(identical(logits(nn::Pass::evaluate()), logits({})));
}

TEST_CASE("attention with dropout does not train without random numbers, without dropout it does") {
  attention::TransformerConfig config = shape();
  config.attention = GENERATE("softmax", "linformer", "window", "random");
  CAPTURE(config.attention);
  const nn::Pass pass{.training = true};
  attention::Transformer without(nn::root(), config);
  CHECK_NOTHROW(without.forward(some_tokens(), {}, pass));
  config.attention_options.set("dropout", 0.3);
  attention::Transformer model(nn::root(), config);
  CHECK_THROWS_WITH(model.forward(some_tokens(), {}, pass),
                    Catch::StartsWith("blocks.0.attention.kernel: needs random numbers"));
  CHECK_NOTHROW(model.forward(some_tokens(), {}, nn::Pass::evaluate()));
}

#include "longhand/train/evaluate/generate.h"

#include <algorithm>
#include <cmath>

#include "longhand/autograd/grad_mode.h"
#include "tests/support/catch.h"

using namespace longhand;
using namespace longhand::train;

namespace {

attention::TransformerConfig language_model(const std::string& variant) {
  attention::TransformerConfig c;
  c.vocabulary = c.classes = 256;
  c.per_token = c.causal = true;
  c.max_length = 9;
  c.d_model = 8;
  c.attention = variant;
  if (variant == "performer") c.attention_options.set("features", int64_t{16});
  return c;
}

// The likeliest continuation, by full passes over the context of the model.
std::string continued(attention::Transformer& model, std::string text, int64_t count) {
  const NoGrad no_grad;
  const auto most = static_cast<size_t>(model.config().max_length);
  const size_t begin = text.size();
  size_t first = text.size() > most ? text.size() - most : 0;
  for (int64_t i = 0; i < count; ++i) {
    if (text.size() - first > most) first = text.size() - most / 2;
    const auto n = static_cast<int64_t>(text.size() - first);
    Tensor tokens = Tensor::empty({1, n}, DType::i32);
    for (int64_t t = 0; t < n; ++t)
      tokens.data<int32_t>()[t] = static_cast<unsigned char>(text[first + t]);
    const auto logits = model.forward(tokens, {}, {}).value().select(1, n - 1).to_vector<double>();
    text += static_cast<char>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  return text.substr(begin);
}

}  // namespace

TEST_CASE("generate: token by token gives what whole passes give, past max_length too") {
  const std::string variant =
      GENERATE(as<std::string>(), "softmax", "performer", "linear", "gaussian");
  const std::string prompt = GENERATE(as<std::string>(), "a", "abcdefghi", "more than max_length");
  INFO(variant << ", prompt " << prompt);
  attention::TransformerConfig config = language_model(variant);
  SECTION("a variant that decodes") {}
  SECTION("one that does not") {
    if (variant != "performer") return;
    config.attention_options.set("eps", 1e-4);
  }
  attention::Transformer model(nn::root(DType::f64, 3), config);
  // Initial logits differ so little that rounding could change their order.
  for (auto& [name, parameter] : model.named_parameters())
    if (parameter.rank() == 2)
      fill_normal(parameter.mutable_value(), Generator(7).fork(name), 0, 1);
  const std::string text = generate(model, prompt, {.tokens = 40, .temperature = 0});
  CHECK(text == continued(model, prompt, 40));
  CHECK(std::count(text.begin(), text.end(), text[0]) < 40);
}

TEST_CASE("generate: the temperature divides the logits") {
  attention::Transformer model(nn::root(DType::f64, 3), language_model("softmax"));
  for (auto& [name, parameter] : model.named_parameters()) {
    parameter.mutable_value().fill(0);
    if (name != "head.bias") continue;
    parameter.mutable_value().fill(-1e9);
    parameter.mutable_value().data<double>()['a'] = std::log(4.0);
    parameter.mutable_value().data<double>()['b'] = 0;
  }
  // Of 2,000 bytes, a: 4^(1/T) / (4^(1/T) + 1).
  for (const auto& [temperature, share] : {std::pair{1.0, 0.8}, {2.0, 2. / 3}, {0.5, 16. / 17}}) {
    CAPTURE(temperature);
    const std::string text = generate(model, "a", {.tokens = 2000, .temperature = temperature});
    CHECK(std::abs(static_cast<double>(std::count(text.begin(), text.end(), 'a')) / 2000 - share) <=
          4 * std::sqrt(share * (1 - share) / 2000));
  }
}

#include "longhand/train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "longhand/autograd/grad_mode.h"
#include "longhand/core/error.h"
#include "longhand/core/random.h"

namespace longhand::train {
namespace {

/// The token that `uniform`, from [0, 1), chooses from softmax(logits / temperature), among the
/// top_k largest.
int64_t choose(const std::vector<double>& logits, const GenerateOptions& options, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(order.size()))
    order.resize(options.top_k);

  std::vector<double> weight;
  for (const int64_t token : order)
    weight.push_back(std::exp((logits[token] - logits[order.front()]) / options.temperature));
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double left = uniform * total;
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

}  // namespace

std::string generate(attention::Transformer& model, std::string_view prompt,
                     const GenerateOptions& options, const std::function<void(char)>& on_byte) {
  const attention::TransformerConfig& config = model.config();
  check<ConfigError>(
      config.causal && config.per_token && config.vocabulary == 256 && config.classes == 256,
      "this model is no language model on bytes: it is ", config.causal ? "" : "not ",
      "causal, and gives ", config.classes, " classes a ", config.per_token ? "token" : "sequence",
      " of a vocabulary of ", config.vocabulary);
  check<ConfigError>(options.tokens >= 0 && options.top_k >= 0 && options.temperature >= 0 &&
                         std::isfinite(options.temperature),
                     "generate: tokens, top_k and temperature must not be negative");
  const NoGrad no_grad;
  const Generator random = Generator(options.seed).fork("generate");
  std::string text(prompt.empty() ? std::string_view("\n") : prompt);
  const size_t begin = text.size();
  for (int64_t i = 0; i < options.tokens; ++i) {
    const auto length = std::min<int64_t>(static_cast<int64_t>(text.size()), config.max_length);
    Tensor tokens = Tensor::empty({1, length}, DType::i32);
    const std::string_view context(text.data() + text.size() - length, length);
    std::transform(context.begin(), context.end(), tokens.data<int32_t>(),
                   [](char c) { return static_cast<unsigned char>(c); });
    const Variable logits = model.forward(tokens, {}, {});
    const auto last = logits.value().select(1, length - 1).to_vector<double>();
    const char next = static_cast<char>(choose(last, options, random.uniform(i)));
    text += next;
    if (on_byte) on_byte(next);
  }
  return text.substr(begin);
}

}  // namespace longhand::train

#include "longhand/train/evaluate/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "longhand/autograd/grad_mode.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/core/random.h"

namespace longhand::train {
namespace {

/// Returns the token that `uniform`, in [0, 1), selects from softmax(logits / temperature),
/// restricted to the top_k largest logits.
int64_t choose(const std::vector<double>& logits, const GenerateOptions& options, double uniform) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
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

Tensor tokens_of(std::string_view text) {
  Tensor tokens = Tensor::empty({static_cast<int64_t>(text.size())}, DType::i32);
  std::ranges::transform(text, tokens.data<int32_t>(),
                         [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
}

/// A model's predictions for a growing text.
class Reader {
 public:
  Reader(attention::Transformer& model, size_t prompt)
      : model_(model),
        most_(static_cast<size_t>(model.config().max_length)),
        first_(prompt > most_ ? prompt - most_ : 0) {
    for (int64_t i = 0; i < model.config().layers; ++i)
      decodes_ = decodes_ && model.kernel(i).capabilities().decodes;
  }

  /// Returns the logits of the byte after `text`, which begins with the text of the previous call.
  std::vector<double> logits(std::string_view text) {
    if (text.size() - first_ > most_) {
      first_ = text.size() - std::max<size_t>(1, most_ / 2);
      decoder_.reset();
    }
    if (!decodes_) {
      const std::string_view seen = text.substr(first_);
      const Variable all = model_.forward(tokens_of(seen).unsqueeze(0), {}, {});
      return all.value().select(1, all.size(1) - 1).to_vector<double>();
    }
    if (!decoder_) {
      decoder_.emplace(model_, 1);
      read_ = first_;
    }
    const Tensor next = tokens_of(text.substr(std::exchange(read_, text.size())));
    return decoder_->read(next.unsqueeze(0)).to_vector<double>();
  }

 private:
  attention::Transformer& model_;
  size_t most_;   // number of bytes that the model may read
  size_t first_;  // index of the first of them
  bool decodes_ = true;
  std::optional<attention::TransformerDecoder> decoder_;
  size_t read_ = 0;  // bytes given to the decoder
};

}  // namespace

std::string generate(attention::Transformer& model, std::string_view prompt,
                     const GenerateOptions& options, const std::function<bool(char)>& on_byte) {
  const attention::TransformerConfig& config = model.config();
  check<ConfigError>(
      config.causal && config.per_token && config.vocabulary == 256 && config.classes == 256,
      "generate: expected a byte-level language model (causal, 256 classes per token), got a model "
      "that is ",
      config.causal ? "" : "not ", "causal, with ", config.classes, " classes per ",
      config.per_token ? "token" : "sequence", " and a vocabulary of ", config.vocabulary);
  check<ConfigError>(options.tokens >= 0 && options.top_k >= 0 && options.temperature >= 0 &&
                         std::isfinite(options.temperature),
                     "generate: expected tokens, top_k and temperature of at least 0");
  const NoGrad no_grad;
  const Generator random = Generator(options.seed).fork("generate");
  std::string text(prompt.empty() ? std::string_view("\n") : prompt);
  const size_t begin = text.size();
  Reader reader(model, begin);
  for (int64_t i = 0; i < options.tokens; ++i) {
    const auto next = static_cast<char>(choose(reader.logits(text), options, random.uniform(i)));
    text += next;
    if (on_byte && !on_byte(next)) break;
  }
  return text.substr(begin);
}

}  // namespace longhand::train

// compression: random tokens, which must all be reconstructed from the vector of the last one (MAD,
// see mad.h), by model.reconstruct after the blocks (attention/model/transformer_config.h).
#include <algorithm>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/mad.h"

namespace longhand::data {
namespace {

/// Tokens: symbols, noise, and the token that ends every sequence.
struct CompressionOptions : MixtureOfLengths {
  int64_t vocabulary = 16;
  Noise noise{};

  CompressionOptions() : MixtureOfLengths{{32}, {{12800}, {1280}, {1280}}} {}
  int64_t symbols() const { return vocabulary - 1 - noise.noise_vocab_size; }
  void describe(OptionVisitor& v) {
    v.integers("length", length, {2, 1 << 24}, "tokens per example; a list: of each segment");
    v.integer("vocabulary", vocabulary, {2, 1 << 24},
              "vocabulary size: symbols, noise, and the token that ends a sequence");
    noise.describe(v);
    v.require(symbols() >= 1, "vocabulary",
              concat_message("expected at least ", 2 + noise.noise_vocab_size,
                             ": one symbol, the last token and noise"));
    sizes.describe(v);
    require_one_or_each(v, {{"length", length}}, sizes);
  }
};

std::optional<TaskInfo> info_of(const CompressionOptions& o) {
  return TaskInfo{.vocabulary = o.vocabulary,
                  .classes = o.vocabulary,
                  .per_token = true,
                  .max_length = o.max_length(),
                  .from_last = true};
}

Task make(const CompressionOptions& o, uint64_t seed, const Splits&) {
  const Draw draw = [o](RandomStream& random, std::span<int32_t> tokens,
                        std::span<int32_t> targets) {
    for (int32_t& token : tokens)
      token = o.noise.falls(random) ? o.noise.draw(random, o.symbols())
                                    : static_cast<int32_t>(random.below(o.symbols()));
    tokens.back() = static_cast<int32_t>(o.vocabulary - 1);
    std::ranges::copy(tokens, targets.begin());
  };
  return o.make(*info_of(o), draw, seed);
}

}  // namespace

TaskSpec register_compression() {
  return make_spec<CompressionOptions>(
      "random tokens, to be reconstructed from the vector of the last one", info_of, make);
}

}  // namespace longhand::data

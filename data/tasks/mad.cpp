#include "longhand/data/tasks/mad.h"

#include "longhand/core/error.h"

namespace longhand::data {

void Noise::describe(OptionVisitor& v) {
  v.integer("noise_vocab_size", noise_vocab_size, {0, 1 << 24},
            "number of noise tokens in the vocabulary");
  v.number("frac_noise", frac_noise, {0, 0.999}, "probability that a place holds noise");
  v.require(frac_noise == 0 || noise_vocab_size > 0, "frac_noise",
            "expected noise_vocab_size of at least 1, the number of tokens to draw noise from");
}

void AnswerOptions::describe(OptionVisitor& v) {
  v.integers("length", length, {16, 1 << 24}, "tokens per example; even; a list: of each segment");
  for (const int64_t n : length) v.require(n % 2 == 0, "length", "expected even numbers");
  v.integer("vocabulary", vocabulary, {4, 1 << 24},
            "vocabulary size: after special tokens and noise, one half keys, the other values");
  noise.describe(v);
  v.boolean(
      "multi_query", multi_query,
      "whether every value of a key that occurred before is a target; otherwise the last one is");
  v.choice(
      "train_loss", train_loss, {"all", "answers"},
      "targets in training: all next tokens, as in the code of the paper, or only those that can "
      "be known, as in validation and test");
  sizes.describe(v);
  require_one_or_each(v, {{"length", length}}, sizes);
  v.require(plain() >= 2, "vocabulary",
            concat_message("expected at least ", 2 + special() + noise.noise_vocab_size,
                           ": one key, one value, special tokens and noise"));
}

TaskInfo AnswerOptions::info() const {
  return {.vocabulary = vocabulary,
          .classes = vocabulary,
          .per_token = true,
          .causal = true,
          .max_length = max_length() - dropped()};
}

Task AnswerOptions::make_recited(uint64_t seed,
                                 const std::function<Recited(RandomStream& random, int64_t length,
                                                             bool training)>& recite) const {
  return make(info(), seed, [&](GeneratedSegment& segment, int64_t) {
    const auto draw_for = [&](bool training) -> Draw {
      return [recite, training, length = segment.length, all = training && train_loss == "all"](
                 RandomStream& random, std::span<int32_t> tokens, std::span<int32_t> targets) {
        const Recited drawn = recite(random, length, training);
        for (size_t i = 0; i < tokens.size(); ++i) {
          tokens[i] = drawn.tokens[i];
          targets[i] = all || drawn.known[i + 1] ? drawn.tokens[i + 1] : ignore_index;
        }
      };
    };
    segment.draw = draw_for(true);
    segment.draw_unseen = draw_for(false);
    segment.length -= dropped();
  });
}

}  // namespace longhand::data

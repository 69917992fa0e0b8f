// in_context_recall: pairs of keys and values, random in each sequence; a repeated key has the same
// value (MAD, see mad.h). noisy_recall: the same, with pairs of noise tokens in between.
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/mad.h"

namespace longhand::data {
namespace {

// Draws a sequence of `length` tokens, plus the special one. Tokens: keys, values, noise; without
// multi_query, the last one precedes the key that is asked for.
Recited draw_pairs(const AnswerOptions& o, RandomStream& random, int64_t length) {
  constexpr int32_t unseen = -1;
  const int64_t keys = o.keys(), values = o.values(), pairs = length / 2;
  Recited drawn;
  std::vector<int32_t> value_of, seen;
  // Noise may replace every pair but the last, which leaves no key to ask for.
  do {
    drawn = {};
    value_of.assign(static_cast<size_t>(keys), unseen);
    seen.clear();
    const auto certain = static_cast<int64_t>(random.below(pairs));
    for (int64_t i = 0; i + 1 < pairs; ++i) {
      if (i != certain && o.noise.falls(random)) {
        for (int j = 0; j < 2; ++j) drawn.add(o.noise.draw(random, o.plain()));
        continue;
      }
      const auto key = static_cast<int32_t>(random.below(keys));
      int32_t& value = value_of[static_cast<size_t>(key)];
      const bool known = value != unseen;
      if (!known) {
        value = static_cast<int32_t>(keys + static_cast<int64_t>(random.below(values)));
        seen.push_back(key);
      }
      drawn.add(key);
      drawn.add(value, known && o.multi_query);
    }
  } while (seen.empty());
  if (!o.multi_query) drawn.add(static_cast<int32_t>(o.vocabulary - 1));
  const int32_t asked = seen[random.below(seen.size())];
  drawn.add(asked);
  drawn.add(value_of[static_cast<size_t>(asked)], true);
  return drawn;
}

std::optional<TaskInfo> info_of(const AnswerOptions& o) { return o.info(); }

Task make(const AnswerOptions& o, uint64_t seed, const Splits&) {
  return o.make_recited(seed, [o](RandomStream& random, int64_t length, bool) {
    return draw_pairs(o, random, length);
  });
}

}  // namespace

TaskSpec register_in_context_recall() {
  return make_spec<AnswerOptions>(
      "pairs of keys and values, some repeated: the value of a key seen before", info_of, make);
}

TaskSpec register_noisy_recall() {
  AnswerOptions defaults;
  defaults.vocabulary = 32;
  defaults.noise = {.noise_vocab_size = 16, .frac_noise = 0.2};
  return make_spec<AnswerOptions>("in_context_recall with pairs of noise tokens in between",
                                  info_of, make, defaults);
}

}  // namespace longhand::data

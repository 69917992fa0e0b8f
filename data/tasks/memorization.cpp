// memorization: keys, each followed by a placeholder whose target is the key's value. Values are
// the same in all sequences, and so learned in training rather than read (MAD, see mad.h).
#include <numeric>
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/mad.h"

namespace longhand::data {
namespace {

/// Tokens: keys, values, noise, the placeholder at which a value is asked for.
struct MemorizationOptions : MixtureOfLengths {
  int64_t vocabulary = 256;
  Noise noise{};

  MemorizationOptions() : MixtureOfLengths{{32}, {{256}, {1280}, {1280}}} {}
  int64_t plain() const { return vocabulary - 1 - noise.noise_vocab_size; }
  int64_t keys() const { return plain() / 2; }
  void describe(OptionVisitor& v) {
    v.integers("length", length, {2, 1 << 24}, "tokens per example; even; a list: of each segment");
    for (const int64_t n : length) v.require(n % 2 == 0, "length", "expected even numbers");
    v.integer(
        "vocabulary", vocabulary, {3, 1 << 24},
        "vocabulary size: without one special token and noise, one half keys, the other values");
    noise.describe(v);
    v.require(plain() >= 2, "vocabulary",
              concat_message("expected at least ", 3 + noise.noise_vocab_size,
                             ": one key, one value, the special token and noise"));
    sizes.describe(v);
    require_one_or_each(v, {{"length", length}}, sizes);
  }
};

std::optional<TaskInfo> info_of(const MemorizationOptions& o) {
  return TaskInfo{.vocabulary = o.vocabulary,
                  .classes = o.vocabulary,
                  .per_token = true,
                  .max_length = o.max_length()};
}

Task make(const MemorizationOptions& o, uint64_t seed, const Splits&) {
  // Different keys have different values.
  std::vector<int32_t> value_of(static_cast<size_t>(o.plain() - o.keys()));
  std::iota(value_of.begin(), value_of.end(), static_cast<int32_t>(o.keys()));
  RandomStream values(Generator(seed).fork("values"));
  values.shuffle(value_of);
  const Draw draw = [o, value_of](RandomStream& random, std::span<int32_t> tokens,
                                  std::span<int32_t> targets) {
    const size_t certain = 2 * random.below(tokens.size() / 2);
    for (size_t i = 0; i < tokens.size(); i += 2) {
      targets[i] = targets[i + 1] = ignore_index;
      if (i != certain && o.noise.falls(random)) {
        for (size_t j = i; j < i + 2; ++j) tokens[j] = o.noise.draw(random, o.plain());
        continue;
      }
      const uint64_t key = random.below(o.keys());
      tokens[i] = static_cast<int32_t>(key);
      tokens[i + 1] = static_cast<int32_t>(o.vocabulary - 1);
      targets[i + 1] = value_of[key];
    }
  };
  return o.make(*info_of(o), draw, seed);
}

}  // namespace

TaskSpec register_memorization() {
  return make_spec<MemorizationOptions>("keys whose values are the same in every sequence", info_of,
                                        make);
}

}  // namespace longhand::data

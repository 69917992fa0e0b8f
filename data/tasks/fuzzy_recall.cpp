// fuzzy_recall: like in_context_recall, but keys and values are sequences of 1 to 3 tokens, without
// delimiters (MAD, see mad.h). In validation and test, keys have the greatest length.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/mad.h"

namespace longhand::data {
namespace {

using Motif = std::vector<int32_t>;

/// Tokens: keys, values, noise, padding; without multi_query, the last one precedes the key that is
/// asked for.
struct FuzzyOptions : AnswerOptions {
  int64_t k_motif_size = 3, v_motif_size = 3;

  FuzzyOptions() { padded = true; }
  int64_t longest_pair() const { return k_motif_size + v_motif_size; }
  void describe(OptionVisitor& v) {
    AnswerOptions::describe(v);
    v.integer("k_motif_size", k_motif_size, {1, 64}, "number of tokens of the longest keys");
    v.integer("v_motif_size", v_motif_size, {1, 64}, "number of tokens of the longest values");
    v.require(keys() >= k_motif_size, "k_motif_size",
              concat_message("expected at most the number of tokens for keys, ", keys(),
                             ": those of a key differ"));
    v.require(values() >= v_motif_size, "v_motif_size",
              concat_message("expected at most the number of tokens for values, ", values(),
                             ": those of a value differ"));
    for (const int64_t n : length)
      v.require(n > 3 * longest_pair(), "length",
                concat_message("expected more than 3 (k_motif_size + v_motif_size) = ",
                               3 * longest_pair()));
  }
};

int64_t from_one_to(RandomStream& random, int64_t most) {
  return 1 + static_cast<int64_t>(random.below(most));
}

// `size` different tokens of `count` from `first` on; every sequence is equally likely.
Motif draw_motif(RandomStream& random, int64_t first, int64_t count, int64_t size) {
  Motif out;
  while (std::ssize(out) < size) {
    const auto token = static_cast<int32_t>(first + static_cast<int64_t>(random.below(count)));
    if (std::ranges::find(out, token) == out.end()) out.push_back(token);
  }
  return out;
}

// A sequence of length + 1 tokens.
Recited draw_motifs(const FuzzyOptions& o, RandomStream& random, int64_t length, bool training) {
  const int64_t keys = o.keys(), values = o.values();
  const auto key_size = [&] {
    return training ? from_one_to(random, o.k_motif_size) : o.k_motif_size;
  };
  const auto draw_key = [&](int64_t size) { return draw_motif(random, 0, keys, size); };
  const auto draw_value = [&](int64_t size) { return draw_motif(random, keys, values, size); };
  const Motif asked = draw_key(key_size()),
              answer = draw_value(from_one_to(random, o.v_motif_size));
  const int64_t pair = std::ssize(asked) + std::ssize(answer);

  // The pair asked for comes where the sequence reaches a place drawn beforehand, or where its key
  // is drawn. The place may lie beyond the end: the answer is then unknown, as in the paper's code.
  const auto place = static_cast<int64_t>(random.below(length - 2 * pair));
  bool placed = false;
  std::map<Motif, Motif> value_of{{asked, answer}};
  std::map<Motif, bool> seen;
  Recited drawn;
  while (std::ssize(drawn.tokens) < length - pair - o.longest_pair()) {
    const int64_t size = key_size(), value_size = from_one_to(random, o.v_motif_size);
    if (std::ssize(drawn.tokens) >= place && !placed) {
      drawn.add(asked);
      drawn.add(answer);
      placed = seen[asked] = true;
      continue;
    }
    if (o.noise.falls(random)) {
      for (int64_t i = 0; i < size + value_size; ++i) drawn.add(o.noise.draw(random, o.plain()));
      continue;
    }
    const Motif key = draw_key(size);
    auto value = value_of.find(key);
    if (value == value_of.end()) value = value_of.emplace(key, draw_value(value_size)).first;
    placed = placed || key == asked;
    drawn.add(key);
    drawn.add(value->second, std::exchange(seen[key], true) && o.multi_query);
  }
  if (!o.multi_query) drawn.add(static_cast<int32_t>(o.vocabulary - 1));
  drawn.add(asked);
  drawn.add(answer, true);

  Recited padded;
  const auto pad = static_cast<int32_t>(o.vocabulary - o.special());
  for (int64_t i = std::ssize(drawn.tokens); i <= length; ++i) padded.add(pad);
  for (size_t i = 0; i < drawn.tokens.size(); ++i) padded.add(drawn.tokens[i], drawn.known[i]);
  return padded;
}

std::optional<TaskInfo> info_of(const FuzzyOptions& o) { return o.info(); }

Task make(const FuzzyOptions& o, uint64_t seed, const Splits&) {
  return o.make_recited(seed, [o](RandomStream& random, int64_t length, bool training) {
    return draw_motifs(o, random, length, training);
  });
}

}  // namespace

TaskSpec register_fuzzy_recall() {
  return make_spec<FuzzyOptions>("in_context_recall with keys and values of 1 to 3 tokens", info_of,
                                 make);
}

}  // namespace longhand::data

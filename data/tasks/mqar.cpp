// mqar: multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927). Pairs of a
// key and a value, then each key once more, where its value is the target.
//
// mqar_stacked: groups of pairs and queries, one after the other, as in a conversation: a memory
// must keep all pairs while it is read and written. With one group it is mqar. `passes` repeats the
// pairs before they are queried (Arora et al. 2024, "Just read twice", arXiv 2407.05483).
//
// mqar_overwrite: mqar in which keys are written again with new values, the latest of which counts:
// a memory must forget the earlier ones (cf. Schlag et al. 2021, arXiv 2102.11174, section 6.1).
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "longhand/data/registry.h"
#include "longhand/data/tasks/generated.h"

namespace longhand::data {
namespace {

/// Associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927): examples of `length`
/// tokens, in `groups` parts of equal length. Each part starts with pairs of a key and a value.
/// After these, keys occur again, and their value is the target; all other targets are ignored.
///
/// Let V be the vocabulary. Keys are 1 … V/2-1, values V/2 … V-1; no value occurs in two different
/// pairs. Without overwrites, each part has `pairs` new keys, which are repeated `passes` times;
/// the first part queries each of its keys once, part g `pairs` different keys of all g · pairs so
/// far, each equally likely. With overwrites, the first part has all keys, and each further part
/// has `overwrites` pairs of these keys, drawn with repetition, and new values, of which the latest
/// counts; each part queries every key once.
///
/// Positions without a query hold 0 or, with random_non_queries, random tokens that are not keys of
/// this example. In mqar, these may be values; in the other tasks they may not, so that a key and
/// the token after it are a pair if that token is a value, and else the key is a query.
///
/// Lists of lengths, pairs and overwrites describe a mixture, one segment for each.
struct RecallOptions {
  std::vector<int64_t> length{64}, pairs{4}, overwrites{0};
  int64_t groups = 1, passes = 1;
  int64_t vocabulary = 8192;
  double power = 0.01;
  bool random_non_queries = false;
  bool causal = false;
  MixtureSizes sizes{{100000}, {3000}, {3000}};
  enum class Kind { plain, stacked, overwrite };
  Kind kind = Kind::plain;  // set by the task, not an option: decides which options it has

  void describe(OptionVisitor& v);
  size_t segments() const { return segments_of({length, pairs, overwrites}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }

 private:
  void require_valid(OptionVisitor& v) const;
};

// Draws the examples of a segment.
struct Recall {
  RecallOptions o;
  int64_t pairs, overwrites;
  std::vector<double> inverse;  // 1 / weight of gap g: (g + 1)^(1 - a)

  void operator()(RandomStream& random, std::span<int32_t> tokens,
                  std::span<int32_t> targets) const {
    const int64_t half = o.vocabulary / 2, later = o.groups - 1;
    const int64_t number_of_keys = pairs * (overwrites > 0 ? 1 : o.groups);
    const std::vector<int32_t> keys = choose(random, 1, half - 1, number_of_keys);
    const std::vector<int32_t> values =
        choose(random, half, o.vocabulary - half, number_of_keys + later * overwrites);
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, ignore_index);
    std::vector<int32_t> latest(keys.size());  // the value of each key
    int64_t known = 0, used = 0;               // keys and values so far
    const size_t length = tokens.size() / static_cast<size_t>(o.groups);
    for (int64_t g = 0; g < o.groups; ++g) {
      std::vector<int64_t> written;  // numbers of keys
      if (g > 0 && overwrites > 0) {
        for (int64_t w = 0; w < overwrites; ++w)
          written.push_back(static_cast<int64_t>(random.below(pairs)));
      } else {
        for (int64_t p = 0; p < pairs; ++p) written.push_back(known++);
      }
      const std::span<int32_t> part = tokens.subspan(g * length, length);
      size_t place = 0;
      for (const int64_t key : written) {
        part[place++] = keys[key];
        part[place++] = latest[key] = values[used++];
      }
      for (const size_t context = place; place < context * o.passes; ++place)
        part[place] = part[place - context];

      std::vector<int32_t> asked(pairs);  // numbers of keys
      std::iota(asked.begin(), asked.end(), 0);
      if (g > 0) asked = choose(random, 0, known, pairs);
      const std::span<int32_t> rest = part.subspan(place);
      const std::span<int32_t> rest_targets = targets.subspan(g * length + place, rest.size());
      const std::vector<int64_t> gaps = choose_gaps(random, rest.size() / 2);
      for (int64_t p = 0; p < pairs; ++p) {
        rest[2 * gaps[p]] = keys[asked[p]];
        rest_targets[2 * gaps[p]] = latest[asked[p]];
      }
      if (o.random_non_queries) fill_gaps(random, keys, rest, rest_targets);
    }
  }

  // `chosen` distinct numbers of first … first + count - 1, by a partial Fisher-Yates shuffle.
  static std::vector<int32_t> choose(RandomStream& random, int64_t first, int64_t count,
                                     int64_t chosen) {
    std::vector<int32_t> all(count);
    std::iota(all.begin(), all.end(), static_cast<int32_t>(first));
    for (int64_t p = 0; p < chosen; ++p)
      std::swap(all[p], all[p + static_cast<int64_t>(random.below(count - p))]);
    all.resize(chosen);
    return all;
  }

  // P distinct gaps below `places`, drawn without replacement, each with probability proportional
  // to its weight among the remaining ones, like the order of exponential variates of these rates.
  std::vector<int64_t> choose_gaps(RandomStream& random, size_t places) const {
    std::vector<std::pair<double, int64_t>> arrivals(places);
    for (size_t g = 0; g < places; ++g)
      arrivals[g] = {-std::log(1 - random.uniform()) * inverse[g], static_cast<int64_t>(g)};
    std::partial_sort(arrivals.begin(), arrivals.begin() + pairs, arrivals.end());
    std::vector<int64_t> gaps(pairs);
    for (int64_t p = 0; p < pairs; ++p) gaps[p] = arrivals[p].second;
    return gaps;
  }

  // Random tokens at positions without a query; never a key of this example, so that a key after
  // the pairs is always a query.
  void fill_gaps(RandomStream& random, std::vector<int32_t> keys, std::span<int32_t> tokens,
                 std::span<const int32_t> targets) const {
    const int64_t below = o.kind == RecallOptions::Kind::plain ? o.vocabulary : o.vocabulary / 2;
    std::ranges::sort(keys);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (targets[i] != ignore_index) continue;
      do {
        tokens[i] = static_cast<int32_t>(random.below(below));
      } while (std::binary_search(keys.begin(), keys.end(), tokens[i]));
    }
  }
};

void RecallOptions::describe(OptionVisitor& v) {
  const bool plain = kind == Kind::plain, stacked = kind == Kind::stacked;
  v.integers("length", length, {4, 1 << 24},
             plain ? "tokens per example; even; a list: of each segment of a mixture"
                   : "tokens per example; a multiple of 2 groups; a list: of each segment of a "
                     "mixture");
  if (!plain)
    v.integer("groups", groups, {1, 1 << 20},
              stacked ? "number of parts of equal length, each with new pairs and then queries of "
                        "any key so far"
                      : "number of parts of equal length: pairs of all keys, then in each further "
                        "part new values of some; all keys are queried in each");
  v.integers("pairs", pairs, {1, 1 << 22},
             plain     ? "number of key-value pairs, at most length / 4; a list: of each segment"
             : stacked ? "number of key-value pairs, and of queries, of each group, at most length "
                         "/ groups / (2 passes + 2); a list: of each segment"
                       : "number of keys, at most length / groups / 4; a list: of each segment");
  if (stacked)
    v.integer("passes", passes, {1, 1 << 20},
              "how often the pairs of a group are repeated before its queries");
  if (kind == Kind::overwrite)
    v.integers("overwrites", overwrites, {1, 1 << 22},
               "number of pairs of each further group, of random keys, at most length / groups / 2 "
               "- pairs; a list: of each segment");
  v.integer("vocabulary", vocabulary, {4, 1 << 24},
            "vocabulary size: one half keys, the other values");
  v.number("power", power, {0, 100},
           "exponent a: a key is queried g positions after the pairs with probability "
           "proportional to g^(a - 1)");
  v.boolean("random_non_queries", random_non_queries,
            plain ? "whether the positions between queries hold random tokens instead of 0"
                  : "whether the positions between queries hold random tokens, but no values, "
                    "instead of 0");
  v.boolean("causal", causal,
            plain
                ? "whether attention must be causal, as in the paper; the task does not require "
                  "it: targets are those of the query at their position"
                : "whether attention must be causal; the task does not require it: targets follow "
                  "from the tokens before a query");
  sizes.describe(v);
  require_valid(v);
}

void RecallOptions::require_valid(OptionVisitor& v) const {
  require_one_or_each(v, {{"length", length}, {"pairs", pairs}, {"overwrites", overwrites}}, sizes);
  for (size_t s = 0; s < std::max({length.size(), pairs.size(), overwrites.size()}); ++s) {
    const int64_t n = of_segment(length, s), p = of_segment(pairs, s),
                  w = of_segment(overwrites, s);
    const int64_t rewritten = (groups - 1) * w, new_keys = w > 0 ? p : groups * p;
    if (kind == Kind::plain)
      v.require(n % 2 == 0, "length", concat_message("expected an even number, got ", n));
    v.require(n % (2 * groups) == 0, "length",
              concat_message("expected a multiple of 2 groups = ", 2 * groups, ", got ", n));
    const std::string room = concat_message("length / groups = ", n / groups);
    v.require(2 * (passes + 1) * p <= n / groups, "pairs",
              kind == Kind::plain     ? concat_message("expected 4 pairs <= length = ", n)
              : kind == Kind::stacked ? concat_message("expected (2 passes + 2) pairs <= ", room,
                                                       ", got ", 2 * passes + 2, " x ", p)
                                      : concat_message("expected 4 pairs <= ", room));
    v.require(
        groups == 1 || 2 * (w + p) <= n / groups, "overwrites",
        concat_message("expected 2 overwrites + 2 pairs <= ", room, ", got 2 x ", w, " + 2 x ", p));
    const int64_t keys = vocabulary / 2 - 1, values = vocabulary - vocabulary / 2;
    v.require(new_keys <= keys, "pairs",
              concat_message("a vocabulary of ", vocabulary, " has only ", keys,
                             " different keys, expected at least ", new_keys));
    v.require(new_keys + rewritten <= values, "overwrites",
              concat_message("a vocabulary of ", vocabulary, " has only ", values,
                             " different values, expected at least pairs + (groups - 1) overwrites "
                             "= ",
                             new_keys + rewritten));
  }
}

std::optional<TaskInfo> info_of(const RecallOptions& o) {
  return TaskInfo{.vocabulary = o.vocabulary,
                  .classes = o.vocabulary,
                  .per_token = true,
                  .causal = o.causal,
                  .max_length = *std::ranges::max_element(o.length)};
}

Task make(const RecallOptions& o, uint64_t seed, const Splits&) {
  std::vector<GeneratedSegment> segments;
  for (size_t s = 0; s < o.segments(); ++s) {
    const int64_t length = of_segment(o.length, s), pairs = of_segment(o.pairs, s);
    const int64_t overwrites = of_segment(o.overwrites, s);
    std::vector<double> inverse(length / o.groups / 2);
    for (size_t g = 0; g < inverse.size(); ++g)
      inverse[g] = std::pow(static_cast<double>(g + 1), 1 - o.power);
    std::string name = concat_message("length ", length, ", ", pairs, " pairs");
    if (o.kind == RecallOptions::Kind::overwrite)
      name += concat_message(", ", overwrites, " overwrites");
    segments.push_back({std::move(name), length, of_segment(o.sizes, s),
                        Recall{o, pairs, overwrites, std::move(inverse)}});
  }
  return make_generated(*info_of(o), segments, seed);
}

}  // namespace

TaskSpec register_mqar() {
  return make_spec<RecallOptions>(
      "associative recall: pairs of a key and a value, then the keys again, whose values are to be "
      "recalled",
      info_of, make);
}

TaskSpec register_mqar_stacked() {
  return make_spec<RecallOptions>(
      "associative recall in groups: new pairs, then queries of any key so far, again and again",
      info_of, make, RecallOptions{.groups = 2, .kind = RecallOptions::Kind::stacked});
}

TaskSpec register_mqar_overwrite() {
  return make_spec<RecallOptions>(
      "associative recall of the latest values: keys are written again with new values", info_of,
      make, RecallOptions{.overwrites = {4}, .groups = 2, .kind = RecallOptions::Kind::overwrite});
}

}  // namespace longhand::data

// mqar: multi-query associative recall (Arora et al. 2023, "Zoology", arXiv 2312.04927). Pairs of a
// key and a value, then each key once more, where its value is the target.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "longhand/data/generated.h"
#include "longhand/data/registry.h"

namespace longhand::data {
namespace {

struct Mqar {
  int64_t pairs;       // P
  int64_t vocabulary;  // V: keys are 1 … V/2-1, values V/2 … V-1
  bool random_non_queries;
  std::vector<double> inverse;  // 1 / weight of gap g: (g + 1)^(1 - a)

  void operator()(RandomStream& random, std::span<int32_t> tokens,
                  std::span<int32_t> targets) const {
    const int64_t half = vocabulary / 2;
    const std::vector<int32_t> keys = choose(random, 1, half - 1);
    const std::vector<int32_t> values = choose(random, half, vocabulary - half);
    std::fill(tokens.begin(), tokens.end(), 0);
    std::fill(targets.begin(), targets.end(), ignore_index);
    for (int64_t p = 0; p < pairs; ++p) {
      tokens[2 * p] = keys[p];
      tokens[2 * p + 1] = values[p];
    }
    const std::vector<int64_t> gaps = choose_gaps(random);
    for (int64_t p = 0; p < pairs; ++p) {
      const int64_t query = 2 * pairs + 2 * gaps[p];
      tokens[query] = keys[p];
      targets[query] = values[p];
    }
    if (random_non_queries) fill_gaps(random, keys, tokens, targets);
  }

  // P distinct numbers of first … first + count - 1, by the first P steps of a Fisher-Yates shuffle.
  std::vector<int32_t> choose(RandomStream& random, int64_t first, int64_t count) const {
    std::vector<int32_t> all(count);
    std::iota(all.begin(), all.end(), static_cast<int32_t>(first));
    for (int64_t p = 0; p < pairs; ++p)
      std::swap(all[p], all[p + static_cast<int64_t>(random.below(count - p))]);
    all.resize(pairs);
    return all;
  }

  // P distinct gaps drawn without replacement, each with probability proportional to its weight
  // among the remaining ones: the order of exponential variates with these rates has this law.
  std::vector<int64_t> choose_gaps(RandomStream& random) const {
    std::vector<std::pair<double, int64_t>> arrivals(inverse.size());
    for (size_t g = 0; g < inverse.size(); ++g)
      arrivals[g] = {-std::log(1 - random.uniform()) * inverse[g], static_cast<int64_t>(g)};
    std::partial_sort(arrivals.begin(), arrivals.begin() + pairs, arrivals.end());
    std::vector<int64_t> gaps(pairs);
    for (int64_t p = 0; p < pairs; ++p) gaps[p] = arrivals[p].second;
    return gaps;
  }

  // Random tokens at positions without a query; never a key of this example, so that a key after the
  // pairs is always a query.
  void fill_gaps(RandomStream& random, std::vector<int32_t> keys, std::span<int32_t> tokens,
                 std::span<const int32_t> targets) const {
    std::sort(keys.begin(), keys.end());
    for (size_t i = 2 * static_cast<size_t>(pairs); i < tokens.size(); ++i) {
      if (targets[i] != ignore_index) continue;
      do {
        tokens[i] = static_cast<int32_t>(random.below(vocabulary));
      } while (std::binary_search(keys.begin(), keys.end(), tokens[i]));
    }
  }
};

struct MqarOptions {
  std::vector<int64_t> length{64}, pairs{4};
  int64_t vocabulary = 8192;
  double power = 0.01;
  bool random_non_queries = false;
  bool causal = false;
  MixtureSizes sizes{{100000}, {3000}, {3000}};

  void describe(OptionVisitor& v) {
    v.integers("length", length, {4, 1 << 24},
               "tokens per example; even; a list: of each segment of a mixture");
    v.integers("pairs", pairs, {1, 1 << 22},
               "number of key-value pairs, at most length / 4; a list: of each segment");
    v.integer("vocabulary", vocabulary, {4, 1 << 24},
              "vocabulary size: one half keys, the other values");
    v.number("power", power, {0, 100},
             "exponent a: a key is queried g positions after the pairs with probability "
             "proportional to g^(a - 1)");
    v.boolean("random_non_queries", random_non_queries,
              "whether the positions between queries hold random tokens instead of 0");
    v.boolean("causal", causal,
              "whether attention must be causal, as in the paper; the task does not require it: "
              "targets are those of the query at their position");
    sizes.describe(v);
    const size_t all = segments();
    require_one_or_each(v, "length", length, all);
    require_one_or_each(v, "pairs", pairs, all);
    require_one_or_each(v, sizes, all);
    for (size_t s = 0; s < std::max(length.size(), pairs.size()); ++s) {
      const int64_t n = length[std::min(s, length.size() - 1)];
      const int64_t p = pairs[std::min(s, pairs.size() - 1)];
      v.require(n % 2 == 0, "length", concat_message("expected an even number, got ", n));
      v.require(p <= n / 4, "pairs", concat_message("expected 4 pairs <= length = ", n));
      v.require(p <= vocabulary / 2 - 1, "pairs",
                concat_message("a vocabulary of ", vocabulary, " has only ", vocabulary / 2 - 1,
                               " different keys"));
    }
  }
  size_t segments() const { return segments_of({length, pairs}, sizes); }
  DataMemory memory() const { return sizes.memory(segments()); }
};

std::optional<TaskInfo> info_of(const MqarOptions& o) {
  return TaskInfo{.vocabulary = o.vocabulary,
                  .classes = o.vocabulary,
                  .per_token = true,
                  .causal = o.causal,
                  .max_length = *std::max_element(o.length.begin(), o.length.end())};
}

Task make(const MqarOptions& o, uint64_t seed, const Splits&) {
  std::vector<GeneratedSegment> segments;
  for (size_t s = 0; s < o.segments(); ++s) {
    const int64_t length = of_segment(o.length, s), pairs = of_segment(o.pairs, s);
    std::vector<double> inverse(length / 2 - pairs);
    for (size_t g = 0; g < inverse.size(); ++g)
      inverse[g] = std::pow(static_cast<double>(g + 1), 1 - o.power);
    segments.push_back({concat_message("length ", length, ", ", pairs, " pairs"), length,
                        of_segment(o.sizes, s),
                        Mqar{pairs, o.vocabulary, o.random_non_queries, std::move(inverse)}});
  }
  return make_generated(*info_of(o), segments, seed);
}

}  // namespace

TaskSpec register_mqar() {
  return make_spec<MqarOptions>(
      "associative recall: pairs of a key and a value, then the keys again, whose values are to be "
      "recalled",
      info_of, make);
}

}  // namespace longhand::data

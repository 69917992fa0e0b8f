#include <cmath>
#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// Targets from the tokens alone: where a key occurs again, its value in the first 2P tokens.
Row mqar_oracle(const Row& tokens, size_t pairs) {
  std::map<int32_t, int32_t> value_of;
  Row targets(tokens.size(), ignore_index);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i < 2 * pairs) {
      if (i % 2 == 1) value_of[tokens[i - 1]] = tokens[i];
    } else if (value_of.count(tokens[i])) {
      targets[i] = value_of[tokens[i]];
    }
  }
  return targets;
}

// The positions of key 0, key 1 …, as gaps.
std::vector<size_t> gaps_of(const Row& tokens, size_t pairs) {
  std::vector<size_t> gaps(pairs);
  for (size_t p = 0; p < pairs; ++p)
    for (size_t i = 2 * pairs; i < tokens.size(); i += 2)
      if (tokens[i] == tokens[2 * p]) gaps[p] = (i - 2 * pairs) / 2;
  return gaps;
}

}  // namespace

TEST_CASE("mqar: the oracle solves every example, and they are as defined") {
  const bool fill = GENERATE(false, true);
  const auto [n, p, v] = GENERATE(table<int64_t, int64_t, int64_t>(
      {{64, 4, 8192}, {4, 1, 16}, {64, 16, 40}, {66, 16, 34}, {65536, 3, 8}}));
  INFO("length " << n << " pairs " << p << " vocabulary " << v << " fill " << fill);
  const Task task = make("mqar", {{"length", n},
                                  {"pairs", p},
                                  {"vocabulary", v},
                                  {"random_non_queries", fill},
                                  {"train_size", 40},
                                  {"validation_size", 40},
                                  {"test_size", 40}});
  CHECK(task.info.vocabulary == v);
  CHECK(task.info.classes == v);
  CHECK(task.info.max_length == n);
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    for (const Example& e : examples(**split, n > 1000 ? 3 : 40)) {
      CHECK(e.targets == mqar_oracle(e.tokens, p));
      std::set<int32_t> keys, values;
      int64_t queries = 0, zeros = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (i < 2 * p) (i % 2 ? values : keys).insert(e.tokens[i]);
        queries += e.targets[i] != ignore_index;
        if (e.targets[i] != ignore_index) CHECK((i - 2 * p) % 2 == 0);
        zeros += e.tokens[i] == 0;
      }
      CHECK(static_cast<int64_t>(keys.size()) == p);
      CHECK(static_cast<int64_t>(values.size()) == p);
      CHECK(*keys.begin() >= 1);
      CHECK(*keys.rbegin() <= v / 2 - 1);
      CHECK(*values.begin() >= v / 2);
      CHECK(*values.rbegin() <= v - 1);
      CHECK(queries == p);
      if (!fill) CHECK(zeros == n - 3 * p);
      if (fill && v == 8192) CHECK(zeros <= 1);
    }
  }
}

TEST_CASE("mqar: gaps follow the power law, without replacement") {
  const double power = GENERATE(0.01, 0.5, 1.0);
  const int64_t n = 12, pairs = 2;  // gaps 0 … 3
  const int64_t count = 12000;
  const Task task =
      make("mqar", {{"length", n}, {"pairs", pairs}, {"power", power}, {"train_size", count}});
  std::vector<double> p(4), found, expected;
  double sum = 0;
  for (int g = 0; g < 4; ++g) sum += p[g] = std::pow(g + 1, power - 1);
  std::map<std::pair<size_t, size_t>, double> seen;
  for (const Example& e : examples(*task.train, count)) {
    const auto gaps = gaps_of(e.tokens, pairs);
    ++seen[{gaps[0], gaps[1]}];
  }
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < 4; ++b) {
      if (a == b) continue;
      found.push_back(seen[{a, b}]);
      expected.push_back(static_cast<double>(count) * p[a] / sum * p[b] / (sum - p[a]));
    }
  }
  CHECK(chi_square(found, expected) <= 31.3);  // 11 degrees of freedom, 1 in 1000
}

TEST_CASE("mqar: keys and values are uniform") {
  const int64_t count = 6000;
  const Task task =
      make("mqar", {{"length", 8}, {"pairs", 2}, {"vocabulary", 16}, {"train_size", count}});
  std::vector<double> keys(7), values(8);
  for (const Example& e : examples(*task.train, count))
    for (int p = 0; p < 2; ++p) ++keys[e.tokens[2 * p] - 1], ++values[e.tokens[2 * p + 1] - 8];
  CHECK(chi_square(keys, std::vector<double>(7, 2. * count / 7)) <= 22.5);    // 1 in 1000
  CHECK(chi_square(values, std::vector<double>(8, 2. * count / 8)) <= 24.3);  // 1 in 1000
}

TEST_CASE("mqar: examples are fixed, for any number of threads") {
  CHECK(hashes("mqar", {}, 200) == std::vector<std::string>{
                                       "461f7a374f86ccec5fa9f9dad2928686",
                                       "5d084847e53799f81cc32834c3040678",
                                       "5f89d1e385260601fbc449bfbd0b1926",
                                   });
  CHECK(hashes("mqar", {{"random_non_queries", true}}, 200)[0] ==
        "d29ea95e775bfcc1d0f62c96cf54318c");
  CHECK(hashes("mqar", {}, 200, 2) != hashes("mqar", {}, 200));
  // The first examples do not depend on their number.
  CHECK(hashes("mqar", {{"train_size", 300}}, 200) == hashes("mqar", {}, 200));
}

TEST_CASE("mqar: batches do not change examples; an index out of range is rejected") {
  const Task task = make("mqar", {{"train_size", 50}});
  const Batch batch = task.train->collate(std::vector<int64_t>{49, 3, 3, 0, 17, 20});
  CHECK(batch.tokens.shape() == Shape{6, 64});
  CHECK_FALSE(batch.lengths.defined());
  CHECK(batch.tokens.select(0, 1).to_vector<int32_t>() == example(*task.train, 3).tokens);
  CHECK(batch.tokens.select(0, 5).to_vector<int32_t>() == example(*task.train, 20).tokens);
  CHECK(batch.targets.select(0, 5).to_vector<int32_t>() == example(*task.train, 20).targets);
  CHECK_THROWS_AS(task.train->collate(std::vector<int64_t>{50}), DataError);
  CHECK_THROWS_AS(task.train->collate(std::vector<int64_t>{-1}), DataError);
}

TEST_CASE("mqar: options out of range are rejected") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("mqar", settings); });
  };
  CHECK_THAT(message({{"pairs", 17}}), Contains("data.pairs = 17") && Contains("length = 64"));
  CHECK_THAT(message({{"pairs", 0}}), Contains("data.pairs"));
  CHECK_THAT(message({{"length", 63}}), Contains("data.length = 63") && Contains("even"));
  CHECK_THAT(message({{"vocabulary", 8}}), Contains("data.pairs") && Contains("3 different keys"));
  CHECK_THAT(message({{"power", -1}}), Contains("data.power"));
  CHECK_THAT(message({{"length", "long"}}), Contains("data.length"));
  CHECK_THAT(message({{"train_size", -1}}), Contains("data.train_size"));
  CHECK_NOTHROW(make("mqar", {{"pairs", 16}}));
}

TEST_CASE("mqar: causal or not, with the same examples") {
  const Task plain = make("mqar", {{"train_size", 8}});
  const Task causal = make("mqar", {{"train_size", 8}, {"causal", true}});
  CHECK_FALSE(plain.info.causal);
  CHECK(causal.info.causal);
  CHECK(content_hash(*plain.train) == content_hash(*causal.train));
  CHECK(plain.train->fingerprint() == content_hash(*plain.train));
}

TEST_CASE("mqar: a mixture of lengths and numbers of pairs") {
  using Ints = std::vector<int64_t>;
  const Settings mixture = {{"length", Ints{16, 64, 64}}, {"pairs", Ints{2, 4, 8}},
                            {"vocabulary", 64},           {"train_size", Ints{30, 20, 10}},
                            {"validation_size", 7},       {"test_size", Ints{5, 6, 7}}};
  const Task task = make("mqar", mixture);
  CHECK(task.info.max_length == 64);
  CHECK(task.train->size() == 60);
  CHECK(task.validation->size() == 21);
  const std::vector<Segment> segments = task.test->segments();
  REQUIRE(segments.size() == 3);
  CHECK(segments[0].name == "length 16, 2 pairs");
  CHECK(segments[1].name == "length 64, 4 pairs");
  CHECK(segments[2].begin == 11);
  CHECK(segments[2].end == 18);
  const std::vector<Example> all = examples(*task.train, 60);
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("example " << i);
    CHECK(all[i].tokens.size() == (i < 30 ? 16 : 64));
    CHECK(all[i].targets == mqar_oracle(all[i].tokens, i < 30 ? 2 : i < 50 ? 4 : 8));
  }
  // The first segment is the task of these options alone; later ones do not depend on its size.
  const Settings first = {{"length", 16}, {"pairs", 2}, {"vocabulary", 64}, {"train_size", 30}};
  CHECK(make("mqar", first).train->segments().empty());
  CHECK(example(*make("mqar", first).train, 29).tokens == all[29].tokens);
  Settings shorter = mixture;
  shorter[3].second = Ints{10, 20, 10};
  CHECK(example(*make("mqar", shorter).train, 10).tokens == all[30].tokens);
  CHECK(all[30].tokens != all[50].tokens);

  // Batches of different lengths are padded.
  const Batch batch = task.train->collate(std::vector<int64_t>{3, 31, 59});
  CHECK(batch.tokens.shape() == Shape{3, 64});
  CHECK(batch.lengths.to_vector<int32_t>() == Row{16, 64, 64});
  Row padded = all[3].targets;
  padded.resize(64, ignore_index);
  CHECK(batch.targets.select(0, 0).to_vector<int32_t>() == padded);
  padded = all[3].tokens;
  padded.resize(64, 0);
  CHECK(batch.tokens.select(0, 0).to_vector<int32_t>() == padded);

  const auto message = [&](const std::string& key, const OptionValue& value) {
    Settings wrong = mixture;
    for (auto& [name, old] : wrong)
      if (name == key) old = value;
    return message_of<ConfigError>([&] { make("mqar", wrong); });
  };
  CHECK_THAT(message("pairs", Ints{2, 4}),
             Contains("data.pairs = [2, 4]") && Contains("one value for all segments, or one for "
                                                         "each of 3"));
  CHECK_THAT(message("test_size", Ints{1, 2, 3, 4}), Contains("each of 4"));
  CHECK_THAT(message("pairs", Ints{5, 4, 8}), Contains("4 pairs <= length = 16"));
  CHECK_THAT(message("length", Ints{16, 63, 64}), Contains("even number, got 63"));
}

TEST_CASE("mqar: lengths that are only tested") {
  using Ints = std::vector<int64_t>;
  Settings settings = {
      {"length", Ints{16, 64}},    {"pairs", Ints{2, 8}},           {"vocabulary", 64},
      {"train_size", Ints{30, 0}}, {"validation_size", Ints{7, 0}}, {"test_size", 5}};
  const Task task = make("mqar", settings);
  CHECK(task.info.max_length == 64);
  CHECK(task.train->size() == 30);
  for (const Example& e : examples(*task.train, 30)) CHECK(e.tokens.size() == 16);
  // Named, since it is one of two.
  const std::vector<Segment> validation = task.validation->segments(), test = task.test->segments();
  REQUIRE(validation.size() == 1);
  CHECK(validation[0].name == "length 16, 2 pairs");
  CHECK(validation[0].end == 7);
  REQUIRE(test.size() == 2);
  CHECK(test[1].end == 10);
  // The examples are those of a task that is also trained on this length.
  settings[3].second = Ints{30, 3};
  CHECK(example(*make("mqar", settings).test, 9).tokens == example(*task.test, 9).tokens);

  settings[3].second = Ints{0, 0};
  CHECK_THAT(message_of<ConfigError>([&] { make("mqar", settings); }),
             Contains("data.train_size = [0, 0]: expected at least one example"));
}

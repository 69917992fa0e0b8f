#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// Targets from the tokens alone, without the layout: a key before a value is a pair, any other key
// that was in a pair is a query of its latest value.
Row recall_oracle(const Row& tokens, int64_t vocabulary) {
  const auto is_value = [&](int32_t token) { return token >= vocabulary / 2; };
  std::map<int32_t, int32_t> value_of;
  Row targets(tokens.size(), ignore_index);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (is_value(tokens[i])) continue;
    if (i + 1 < tokens.size() && is_value(tokens[i + 1]))
      value_of[tokens[i]] = tokens[i + 1];
    else if (value_of.contains(tokens[i]))
      targets[i] = value_of[tokens[i]];
  }
  return targets;
}

int64_t number_of_targets(const Example& e, size_t begin, size_t end) {
  return std::count_if(e.targets.begin() + static_cast<std::ptrdiff_t>(begin),
                       e.targets.begin() + static_cast<std::ptrdiff_t>(end),
                       [](int32_t t) { return t != ignore_index; });
}

Settings with_sizes(Settings settings, int64_t size) {
  for (const char* key : {"train_size", "validation_size", "test_size"})
    settings.emplace_back(key, size);
  return settings;
}

}  // namespace

TEST_CASE("mqar_stacked: the oracle solves every example, and they are as defined") {
  const bool fill = GENERATE(false, true);
  const auto [n, groups, p, passes, v] = GENERATE(table<size_t, int64_t, int64_t, int64_t, int64_t>(
      {{64, 2, 4, 1, 8192},
       {64, 4, 4, 1, 34},  // no room left, and no other key
       {60, 3, 2, 4, 64},  // pairs four times
       {12, 3, 1, 1, 8},   // the shortest groups
       {4, 1, 1, 1, 16},   // the shortest example
       {2048, 1, 3, 50, 100},
       {1024, 128, 1, 2, 600}}));
  INFO("length " << n << " groups " << groups << " pairs " << p << " passes " << passes
                 << " vocabulary " << v << " fill " << fill);
  const Task task = make("mqar_stacked", with_sizes({{"length", static_cast<int64_t>(n)},
                                                     {"groups", groups},
                                                     {"pairs", p},
                                                     {"passes", passes},
                                                     {"vocabulary", v},
                                                     {"random_non_queries", fill}},
                                                    400));
  CHECK(task.info.vocabulary == v);
  CHECK(task.info.classes == v);
  CHECK(task.info.max_length == static_cast<int64_t>(n));
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  const size_t part = n / static_cast<size_t>(groups),
               context = static_cast<size_t>(2 * p * passes);
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    bool labels = true, layout = true;
    for (const Example& e : examples(**split, n > 100 ? 20 : 400)) {
      labels &= e.targets == recall_oracle(e.tokens, v);
      std::set<int32_t> keys, values;
      for (size_t begin = 0; begin < n; begin += part) {
        for (size_t i = begin; i < begin + context; i += 2) {
          if (i < begin + static_cast<size_t>(2 * p)) {
            layout &= keys.insert(e.tokens[i]).second && values.insert(e.tokens[i + 1]).second;
          } else {  // a later pass is the one before again
            layout &= e.tokens[i] == e.tokens[i - static_cast<size_t>(2 * p)];
            layout &= e.tokens[i + 1] == e.tokens[i + 1 - static_cast<size_t>(2 * p)];
          }
        }
        layout &= number_of_targets(e, begin, begin + context) == 0;
        layout &= number_of_targets(e, begin, begin + part) == p;
        std::set<int32_t> asked;
        for (size_t i = begin + context; i < begin + part; ++i) {
          layout &= e.tokens[i] < v / 2;
          if (e.targets[i] == ignore_index) {
            layout &= fill || e.tokens[i] == 0;
          } else {
            layout &= (i - begin) % 2 == 0 && asked.insert(e.tokens[i]).second;
          }
        }
      }
      layout &= *keys.begin() >= 1 && *keys.rbegin() <= v / 2 - 1;
      layout &= *values.begin() >= v / 2 && *values.rbegin() <= v - 1;
    }
    CHECK(labels);
    CHECK(layout);
  }
}

TEST_CASE("mqar_overwrite: the oracle solves every example, and they are as defined") {
  const bool fill = GENERATE(false, true);
  const auto [n, groups, p, overwrites, v] =
      GENERATE(table<size_t, size_t, int64_t, int64_t, int64_t>(
          {{64, 2, 4, 4, 8192},
           {64, 4, 4, 4, 40},  // no room left
           {60, 3, 4, 6, 32},  // no room left, and no other value
           {8, 2, 1, 1, 12},   // the shortest example
           {64, 1, 4, 4, 64},  // nothing overwritten
           {1024, 2, 1, 255, 600},
           {2048, 256, 2, 1, 600}}));
  INFO("length " << n << " groups " << groups << " pairs " << p << " overwrites " << overwrites
                 << " vocabulary " << v << " fill " << fill);
  const Task task = make("mqar_overwrite", with_sizes({{"length", static_cast<int64_t>(n)},
                                                       {"groups", static_cast<int64_t>(groups)},
                                                       {"pairs", p},
                                                       {"overwrites", overwrites},
                                                       {"vocabulary", v},
                                                       {"random_non_queries", fill}},
                                                      400));
  CHECK(task.info.vocabulary == v);
  CHECK(task.info.max_length == static_cast<int64_t>(n));
  const size_t part = n / groups;
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    bool labels = true, layout = true;
    for (const Example& e : examples(**split, n > 100 ? 10 : 400)) {
      labels &= e.targets == recall_oracle(e.tokens, v);
      std::set<int32_t> keys, values;
      for (size_t begin = 0; begin < n; begin += part) {
        const size_t context = static_cast<size_t>(2 * (begin == 0 ? p : overwrites));
        for (size_t i = begin; i < begin + context; i += 2) {
          layout &= keys.insert(e.tokens[i]).second == (begin == 0);
          layout &= values.insert(e.tokens[i + 1]).second;
        }
        std::set<int32_t> asked;
        for (size_t i = begin + context; i < begin + part; ++i)
          if (e.targets[i] != ignore_index) asked.insert(e.tokens[i]);
        layout &= asked == keys && number_of_targets(e, begin, begin + context) == 0;
        layout &= number_of_targets(e, begin, begin + part) == p;
      }
      layout &= static_cast<int64_t>(keys.size()) == p && *keys.begin() >= 1;
      layout &= *values.begin() >= v / 2 && *values.rbegin() < v;
    }
    CHECK(labels);
    CHECK(layout);
  }
}

TEST_CASE("mqar_stacked and mqar_overwrite with one group are mqar") {
  const auto [n, p] = GENERATE(table<int64_t, int64_t>({{64, 4}, {48, 12}}));
  const std::string task = GENERATE("mqar_stacked", "mqar_overwrite");
  Settings settings = {{"length", n}, {"pairs", p}, {"vocabulary", 256}};
  const auto expected = hashes("mqar", settings, 100);
  settings.emplace_back("groups", 1);
  CHECK(hashes(task, settings, 100) == expected);
}

TEST_CASE("mqar_stacked: every key so far is queried equally often") {
  const int64_t count = 4000;
  const Task task = make(
      "mqar_stacked",
      {{"length", 48}, {"groups", 3}, {"pairs", 2}, {"vocabulary", 64}, {"train_size", count}});
  std::vector<std::vector<double>> asked(3, std::vector<double>(6));
  for (const Example& e : examples(*task.train, count))
    for (size_t i = 0; i < 48; ++i)
      for (size_t key = 0; key < 6 && e.targets[i] != ignore_index; ++key)
        asked[i / 16][key] += e.tokens[i] == e.tokens[key / 2 * 16 + key % 2 * 2];
  for (size_t g = 0; g < 3; ++g) {
    std::vector<double> found = asked[g], expected(2 * (g + 1), count / static_cast<double>(g + 1));
    for (size_t key = found.size(); key-- > expected.size();) CHECK(found[key] == 0);
    found.resize(expected.size());
    CHECK(chi_square(found, expected) <= 20.6);  // 5 degrees of freedom, 1 in 1000
  }
}

TEST_CASE("mqar_overwrite: every key is overwritten equally often, independently") {
  const int64_t count = 6000;
  const Task task = make(
      "mqar_overwrite",
      {{"length", 24}, {"pairs", 3}, {"overwrites", 2}, {"vocabulary", 64}, {"train_size", count}});
  std::vector<double> written(9);
  for (const Example& e : examples(*task.train, count)) {
    size_t choice = 0;
    for (const size_t place : {12, 14})
      for (size_t key = 0; key < 3; ++key)
        if (e.tokens[place] == e.tokens[2 * key]) choice = 3 * choice + key;
    ++written[choice];
  }
  CHECK(chi_square(written, std::vector<double>(9, count / 9.)) <= 26.1);  // 1 in 1000
}

TEST_CASE("mqar_stacked and mqar_overwrite: examples are fixed, for any number of threads") {
  CHECK(hashes("mqar_stacked", {{"random_non_queries", true}, {"passes", 2}}, 200) ==
        std::vector<std::string>{"d074d9422d7743e9b1af3680e29cd08a",
                                 "846be871c4ef14a4336b37f67c9f0f26",
                                 "83e5d0d80302b25f6b5f9411151ab20a"});
  CHECK(hashes("mqar_overwrite", {{"random_non_queries", true}}, 200) ==
        std::vector<std::string>{"66b5f37ef0bd7683e1be65244bbc1c7e",
                                 "54cc65db78babffea39b0eda55139f0e",
                                 "1df0f3eb5a00201ad6971efa3d128a69"});
}

TEST_CASE("mqar_stacked and mqar_overwrite: a mixture, with segments named by their options") {
  using Ints = std::vector<int64_t>;
  const Task task = make("mqar_overwrite", {{"length", Ints{16, 32}},
                                            {"pairs", 2},
                                            {"overwrites", Ints{2, 6}},
                                            {"vocabulary", 64},
                                            {"train_size", Ints{30, 20}},
                                            {"validation_size", 5},
                                            {"test_size", 5}});
  CHECK(task.train->size() == 50);
  CHECK(task.info.max_length == 32);
  const auto segments = task.train->segments();
  REQUIRE(segments.size() == 2);
  CHECK(segments[0].name == "length 16, 2 pairs, 2 overwrites");
  CHECK(segments[1].name == "length 32, 2 pairs, 6 overwrites");
  for (const Example& e : examples(*task.train, 50))
    CHECK(e.targets == recall_oracle(e.tokens, 64));
  const Task stacked = make("mqar_stacked", {{"length", Ints{32, 64}}, {"vocabulary", 64}});
  CHECK(stacked.train->segments()[1].name == "length 64, 4 pairs");
  CHECK(example(*stacked.test, 3500).targets ==
        recall_oracle(example(*stacked.test, 3500).tokens, 64));
}

TEST_CASE("mqar_stacked and mqar_overwrite: options out of range are rejected") {
  const auto message = [](const std::string& task, const Settings& settings) {
    return message_of<ConfigError>([&] { make(task, settings); });
  };
  CHECK_THAT(message("mqar_stacked", {{"length", 66}}),
             Contains("data.length = 66") && Contains("a multiple of 2 groups = 4, got 66"));
  CHECK_THAT(message("mqar_stacked", {{"pairs", 9}}),
             Contains("data.pairs = 9") && Contains("length / groups = 32, got 4 x 9"));
  CHECK_THAT(message("mqar_stacked", {{"passes", 4}}),
             Contains("(2 passes + 2) pairs <= length / groups = 32, got 10 x 4"));
  CHECK_THAT(message("mqar_stacked", {{"vocabulary", 16}}),
             Contains("7 different keys, expected at least 8"));
  CHECK_THAT(message("mqar_stacked", {{"groups", 0}}), Contains("data.groups"));
  CHECK_THAT(message("mqar_stacked", {{"overwrites", 2}}),
             Contains("data.overwrites") && Contains("unknown option"));
  CHECK_THAT(message("mqar_overwrite", {{"length", 63}}),
             Contains("a multiple of 2 groups = 4, got 63"));
  CHECK_THAT(message("mqar_overwrite", {{"pairs", 9}}),
             Contains("data.pairs = 9") && Contains("4 pairs <= length / groups = 32"));
  CHECK_THAT(message("mqar_overwrite", {{"overwrites", 13}}),
             Contains("data.overwrites = 13") &&
                 Contains("2 overwrites + 2 pairs <= length / groups = 32, got 2 x 13 + 2 x 4"));
  CHECK_THAT(message("mqar_overwrite", {{"overwrites", 0}}), Contains("data.overwrites"));
  CHECK_THAT(message("mqar_overwrite", {{"overwrites", 12}, {"vocabulary", 30}}),
             Contains("data.overwrites = 12") && Contains("15 different values") &&
                 Contains("pairs + (groups - 1) overwrites = 16"));
  CHECK_THAT(message("mqar_overwrite", {{"vocabulary", 8}}),
             Contains("3 different keys, expected at least 4"));
  CHECK_THAT(message("mqar_overwrite", {{"passes", 2}}), Contains("unknown option"));
  CHECK_THAT(message("mqar", {{"groups", 2}}), Contains("unknown option"));
  CHECK_THAT(message("mqar_overwrite", {{"overwrites", std::vector<int64_t>{1, 2}},
                                        {"length", std::vector<int64_t>{16, 32, 64}}}),
             Contains("data.overwrites = [1, 2]") && Contains("one for each of 3"));
}

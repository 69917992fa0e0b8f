#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// The solution: all symbols, in order, after the delimiter, which is the largest token.
Row copying_oracle(const Row& tokens, int32_t delimiter) {
  Row seen, targets;
  for (const int32_t t : tokens) {
    const bool writing = targets.size() > 0 && tokens[targets.size() - 1] == delimiter;
    if (writing) break;
    if (t != 0 && t != delimiter) seen.push_back(t);
    targets.push_back(ignore_index);
  }
  targets.insert(targets.end(), seen.begin(), seen.end());
  return targets;
}

}  // namespace

TEST_CASE("copy and selective_copy: the oracle solves every example") {
  const std::string name = GENERATE("copy", "selective_copy");
  const auto [length, count, symbols] = GENERATE(
      table<int64_t, int64_t, int64_t>({{64, 16, 8}, {9, 4, 5}, {40, 1, 100}, {1000, 3, 2}}));
  INFO(name << " length " << length << " count " << count << " symbols " << symbols);
  const Task task = make(name, {{"length", length},
                                {"count", count},
                                {"symbols", symbols},
                                {"train_size", 30},
                                {"validation_size", 30},
                                {"test_size", 30}});
  CHECK(task.info.vocabulary == symbols + 2);
  CHECK(task.info.classes == symbols + 2);
  CHECK(task.info.max_length == length);
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  for (const auto* split : {&task.train, &task.validation, &task.test}) {
    for (const Example& e : examples(**split, 30)) {
      CHECK(e.targets == copying_oracle(e.tokens, static_cast<int32_t>(symbols) + 1));
      CHECK(e.targets.size() == e.tokens.size());
      int64_t written = 0;
      for (int64_t i = 0; i < length; ++i) {
        written += e.targets[i] != ignore_index;
        if (i >= length - count) CHECK(e.tokens[i] == 0);
        if (name == "copy" && i < count) CHECK((e.tokens[i] >= 1 && e.tokens[i] <= symbols));
      }
      CHECK(written == count);
      CHECK(e.tokens[length - count - 1] == symbols + 1);
    }
  }
}

TEST_CASE("selective_copy: places and symbols are uniform") {
  const int64_t count = 6000;
  const Task task =
      make("selective_copy", {{"length", 8}, {"count", 2}, {"symbols", 4}, {"train_size", count}});
  std::map<std::pair<int, int>, double> places;  // 10 pairs of 0 … 4
  std::vector<double> symbols(4), found;
  for (const Example& e : examples(*task.train, count)) {
    std::vector<int> at;
    for (int i = 0; i < 5; ++i) {
      if (e.tokens[i] == 0) continue;
      at.push_back(i);
      ++symbols[e.tokens[i] - 1];
    }
    REQUIRE(at.size() == 2);
    ++places[{at[0], at[1]}];
  }
  for (const auto& [pair, n] : places) found.push_back(n);
  REQUIRE(found.size() == 10);
  // All 160 different examples occur; a hash decides which of them are for training, which affects
  // the frequencies far more than chance does.
  for (const double n : found) CHECK(std::abs(n / count - 0.1) <= 0.06);
  for (const double n : symbols) CHECK(std::abs(n / (2 * count) - 0.25) <= 0.06);
}

TEST_CASE("selective_copy: blanks before symbols, as in MAD") {
  const Task task = make("selective_copy", {{"blanks", "before_symbols"}, {"symbols", 14}});
  CHECK(task.info.vocabulary == 16);
  std::vector<double> before(16);  // blanks before symbol i
  for (const Example& e : examples(*task.train, 200)) {
    REQUIRE(e.targets == copying_oracle(e.tokens, 15));
    CHECK(e.tokens[256 - 16 - 2] != 0);
    size_t symbol = 0;
    for (size_t i = 0; i < 256 - 16 - 1; ++i) {
      if (e.tokens[i] == 0)
        ++before[symbol];
      else
        ++symbol;
    }
    CHECK(symbol == 16);
  }
  // 223 blanks among 16 symbols: 15 degrees of freedom, 1 in 1000.
  CHECK(chi_square(before, std::vector(16, 200 * 223 / 16.)) <= 37.7);
}

TEST_CASE("generated splits never share an example, however few there are") {
  const auto [task_name, settings, number] = GENERATE(table<std::string, Settings, size_t>(
      {{"copy", {{"length", 7}, {"count", 3}, {"symbols", 4}}, 64},
       {"parity", {{"length", 6}}, 64},
       {"induction", {{"length", 5}, {"symbols", 3}}, 81},
       {"mqar_stacked", {{"length", 8}, {"groups", 2}, {"pairs", 1}, {"vocabulary", 8}}, 144},
       {"mqar_overwrite",
        {{"length", 8}, {"pairs", 1}, {"overwrites", 1}, {"vocabulary", 12}},
        150}}));
  INFO(task_name);
  const Task task = make(task_name, settings);
  std::map<std::string, std::set<Row>> seen;
  for (const char* split : {"train", "validation", "test"})
    for (const Example& e : examples(task.split(split), 1000)) seen[split].insert(e.tokens);
  std::set<Row> all;
  for (const auto& [split, rows] : seen) all.insert(rows.begin(), rows.end());
  CHECK(all.size() == number);
  CHECK(seen["train"].size() + seen["validation"].size() + seen["test"].size() == number);
  CHECK(seen["train"].size() > seen["test"].size());
}

TEST_CASE("a task with too few different examples is refused") {
  CHECK_THAT(message_of<ConfigError>([] {
               make("copy", {{"length", 3}, {"count", 1}, {"symbols", 1}});
             }),
             Contains("so few different examples"));
}

TEST_CASE("copy and selective_copy: examples are fixed, for any number of threads") {
  CHECK(hashes("copy", {}, 200) == std::vector<std::string>{"9ec9433a2df13064fd8d3902db590c46",
                                                            "4148498421cd4e1e1de1dd5b39592b8b",
                                                            "eaf8aeb28f421002e65be26349ccf6b3"});
  CHECK(hashes("selective_copy", {}, 200) ==
        std::vector<std::string>{"434d4564b2e71a6ebfd50c2839bce63b",
                                 "05f881376b0bba90917973ba92070505",
                                 "e98d1d822ea3b60dc8d79ad0137f7545"});
}

TEST_CASE("copy and selective_copy: options out of range are rejected") {
  const std::string name = GENERATE("copy", "selective_copy");
  const auto message = [&](const Settings& settings) {
    return message_of<ConfigError>([&] { make(name, settings); });
  };
  CHECK_THAT(message({{"length", 32}, {"count", 16}}), Contains("data.count = 16"));
  CHECK_THAT(message({{"count", 0}}), Contains("data.count"));
  CHECK_THAT(message({{"symbols", 0}}), Contains("data.symbols"));
  CHECK_THAT(message({{"length", 2}}), Contains("data.length"));
  CHECK_NOTHROW(make(name, {{"length", 33}, {"count", 16}}));
  CHECK_THAT(message({{"length", 17}, {"count", std::vector<int64_t>{8, 9}}}),
             Contains("2 count + 1 <= length = 17"));
}

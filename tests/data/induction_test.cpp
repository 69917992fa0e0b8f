#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// What follows the first occurrence of the last token.
Row induction_oracle(const Row& tokens) {
  Row targets(tokens.size(), ignore_index);
  targets.back() = *(std::find(tokens.begin(), tokens.end(), tokens.back()) + 1);
  return targets;
}

}  // namespace

TEST_CASE("induction: the oracle solves every example") {
  const auto [length, symbols] =
      GENERATE(table<int64_t, int32_t>({{64, 16}, {3, 40}, {4, 9}, {20, 1}, {20000, 3}}));
  INFO("length " << length << " symbols " << symbols);
  const Task task = make("induction", {{"length", length}, {"symbols", int64_t{symbols}}});
  CHECK(task.info.vocabulary == symbols + 1);
  CHECK(task.info.classes == symbols + 1);
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  CHECK(task.info.max_length == length);
  for (const char* split : {"train", "validation", "test"}) {
    bool labels = true, layout = true;
    for (const Example& e : examples(task.split(split), length > 1000 ? 2 : 500)) {
      labels &= e.targets == induction_oracle(e.tokens);
      layout &= e.tokens.back() == symbols && e.targets.back() < symbols;
      layout &= std::count(e.tokens.begin(), e.tokens.end(), symbols) == 2;
      layout &= *std::min_element(e.tokens.begin(), e.tokens.end()) >= 0;
      layout &= *std::max_element(e.tokens.begin(), e.tokens.end()) == symbols;
    }
    CHECK(labels);
    CHECK(layout);
  }
}

TEST_CASE("induction: places of the marker and targets are uniform") {
  const int64_t count = 6000;
  const Task task = make("induction", {{"length", 12}, {"symbols", 8}, {"train_size", count}});
  std::vector<double> places(10), targets(8);
  for (const Example& e : examples(*task.train, count)) {
    ++places[static_cast<size_t>(std::find(e.tokens.begin(), e.tokens.end(), 8) -
                                 e.tokens.begin())];
    ++targets[static_cast<size_t>(e.targets.back())];
  }
  CHECK(chi_square(places, std::vector<double>(10, count / 10.)) <= 27.9);  // 1 in 1000
  CHECK(chi_square(targets, std::vector<double>(8, count / 8.)) <= 24.3);   // 1 in 1000
}

TEST_CASE("induction: examples are fixed, for any number of threads; lists make a mixture") {
  CHECK(hashes("induction", {}, 200) ==
        std::vector<std::string>{"a771cf0db57c7a6605cb6660f1d6bc07",
                                 "fee1f2fe0a6b512159c20cf669b178a3",
                                 "aede22df17e4396c274c38cee45b676c"});
  const Task task =
      make("induction", {{"length", std::vector<int64_t>{16, 40}}, {"train_size", 10}});
  CHECK(task.info.max_length == 40);
  REQUIRE(task.train->segments().size() == 2);
  CHECK(task.train->segments()[1].name == "length 40");
  CHECK(example(*task.train, 10).tokens.size() == 40);
  CHECK(example(*task.train, 10).targets == induction_oracle(example(*task.train, 10).tokens));
}

TEST_CASE("induction: options out of range are rejected") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("induction", settings); });
  };
  CHECK_THAT(message({{"length", 2}}), Contains("data.length"));
  CHECK_THAT(message({{"symbols", 0}}), Contains("data.symbols"));
  CHECK_THAT(message({{"length", 3}, {"symbols", 1}}), Contains("so few different examples"));
}

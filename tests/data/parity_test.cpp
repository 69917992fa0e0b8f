#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

Row parity_oracle(const Row& bits, bool each) {
  Row targets(bits.size(), ignore_index);
  for (size_t i = each ? 0 : bits.size() - 1; i < bits.size(); ++i)
    targets[i] = static_cast<int32_t>(
        std::count(bits.begin(), bits.begin() + static_cast<std::ptrdiff_t>(i) + 1, 1) % 2);
  return targets;
}

}  // namespace

TEST_CASE("parity: the oracle solves every example") {
  const bool each = GENERATE(true, false);
  const int64_t length = GENERATE(6, 64, 255, 3000);
  INFO("length " << length << " each " << each);
  const Task task = make("parity", {{"length", length}, {"targets", each ? "each" : "last"}});
  CHECK(task.info.vocabulary == 2);
  CHECK(task.info.classes == 2);
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  CHECK(task.info.max_length == length);
  for (const char* split : {"train", "validation", "test"}) {
    bool labels = true;
    std::set<int32_t> tokens;
    for (const Example& e : examples(task.split(split), length > 1000 ? 1 : 500)) {
      labels &= e.targets == parity_oracle(e.tokens, each);
      tokens.insert(e.tokens.begin(), e.tokens.end());
    }
    CHECK(labels);
    CHECK(tokens == std::set<int32_t>{0, 1});
  }
}

TEST_CASE("parity: bits and targets are uniform") {
  const int64_t count = 4000, length = 24;
  const Task task = make("parity", {{"length", length}, {"train_size", count}});
  std::vector<double> ones(length), odd(length);
  for (const Example& e : examples(*task.train, count))
    for (size_t i = 0; i < ones.size(); ++i) ones[i] += e.tokens[i], odd[i] += e.targets[i];
  // Squares of standard normal variates: 24 degrees of freedom, 1 in 1000.
  const std::vector<double> half(length, count / 2.);
  CHECK(chi_square(ones, half) * 2 <= 51.2);
  CHECK(chi_square(odd, half) * 2 <= 51.2);
}

TEST_CASE("parity: examples are fixed, for any number of threads; lists make a mixture") {
  CHECK(hashes("parity", {}, 200) == std::vector<std::string>{"89d2f9ab972a6664319bdea54585667c",
                                                              "ac0fecf8543a68b9149a7fda9e85822e",
                                                              "6d986a3f59a30533cfce4c6f28bc1ab5"});
  CHECK(hashes("parity", {{"targets", "last"}}, 200)[0] != hashes("parity", {}, 200)[0]);
  const Task task = make("parity", {{"length", std::vector<int64_t>{16, 40}}, {"train_size", 10}});
  CHECK(task.info.max_length == 40);
  REQUIRE(task.train->segments().size() == 2);
  CHECK(task.train->segments()[1].name == "length 40");
  for (const int64_t i : {9, 10}) {
    const Example e = example(*task.train, i);
    CHECK(e.tokens.size() == (i < 10 ? 16 : 40));
    CHECK(e.targets == parity_oracle(e.tokens, true));
  }
}

TEST_CASE("parity: options out of range are rejected") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("parity", settings); });
  };
  CHECK_THAT(message({{"length", 0}}), Contains("data.length"));
  CHECK_THAT(message({{"length", 1}}), Contains("so few different examples"));
  CHECK_THAT(message({{"targets", "all"}}),
             Contains("data.targets") && Contains("one of each, last"));
  CHECK_THAT(message({{"length", std::vector<int64_t>{8, 9}},
                      {"test_size", std::vector<int64_t>{1, 2, 3}}}),
             Contains("data.length = [8, 9]") && Contains("one for each of 3"));
  CHECK_THAT(message({{"train_size", std::vector<int64_t>{10, 10}},
                      {"test_size", std::vector<int64_t>{1, 2, 3}}}),
             Contains("data.train_size = [10, 10]") && Contains("one for each of 3"));
}

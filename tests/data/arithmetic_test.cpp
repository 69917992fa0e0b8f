#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// A parser of sums of products of numbers, signs and brackets, that knows nothing of how they are drawn.
class Parser {
 public:
  Parser(const Row& tokens, int32_t m) : tokens_(tokens), m_(m) {}
  int32_t value() {
    const int64_t value = sum();
    REQUIRE(at_ + 1 == tokens_.size());
    REQUIRE(tokens_[at_] == m_ + 3);
    return static_cast<int32_t>((value % m_ + m_) % m_);
  }

 private:
  bool take(int32_t operation) {
    if (tokens_.at(at_) != m_ + operation) return false;
    ++at_;
    return true;
  }
  int64_t sum() {
    int64_t value = product();
    while (true) {
      if (take(0))
        value += product();
      else if (take(1))
        value -= product();
      else
        return value % m_;
    }
  }
  int64_t product() {
    int64_t value = factor();
    while (take(2)) value = value * factor() % m_;
    return value;
  }
  int64_t factor() {
    if (take(1)) return -factor();
    if (take(4)) {
      const int64_t value = sum();
      REQUIRE(take(5));
      return value;
    }
    REQUIRE(tokens_.at(at_) < m_);
    return tokens_[at_++];
  }

  const Row& tokens_;
  int32_t m_;
  size_t at_ = 0;
};

}  // namespace

TEST_CASE("arithmetic: the oracle solves every example") {
  const bool brackets = GENERATE(false, true), multiplication = GENERATE(false, true);
  const int32_t modulus = GENERATE(2, 5, 13);
  INFO("brackets " << brackets << " multiplication " << multiplication << " m " << modulus);
  const Task task = make("arithmetic", {{"brackets", brackets},
                                        {"multiplication", multiplication},
                                        {"modulus", static_cast<int64_t>(modulus)}});
  CHECK(task.info.vocabulary == modulus + 6);
  CHECK(task.info.classes == modulus);
  CHECK(task.info.max_length == 38);
  std::set<int32_t> tokens, answers;
  for (const char* const split : {"train", "validation", "test"})
    for (const Example& e : examples(task.split(split), 300)) {
      REQUIRE(e.targets.back() == Parser(e.tokens, modulus).value());
      REQUIRE(std::count(e.targets.begin(), e.targets.end(), ignore_index) ==
              std::ssize(e.targets) - 1);
      tokens.insert(e.tokens.begin(), e.tokens.end());
      answers.insert(e.targets.back());
    }
  CHECK(std::ssize(tokens) == modulus + 3 + multiplication + 2 * brackets);
  CHECK(std::ssize(answers) == modulus);
}

TEST_CASE("arithmetic: lengths are those of the published generators") {
  const auto lengths_of = [](const Settings& settings) {
    std::map<size_t, int> lengths;
    for (const Example& e : examples(*make("arithmetic", settings).train, 3800))
      ++lengths[e.tokens.size()];
    return lengths;
  };
  // 3, 5, … 39 with the result.
  const auto plain = lengths_of({});
  CHECK(plain.size() == 19);
  CHECK(plain.begin()->first == 2);
  CHECK(plain.rbegin()->first == 38);
  for (const auto& [length, count] : plain) CHECK(std::abs(count - 200) < 60);
  // 3 to 40, with at least 5.
  const auto bracketed = lengths_of({{"brackets", true}});
  CHECK(bracketed.size() == 36);
  CHECK(bracketed.begin()->first == 3);
  CHECK(bracketed.rbegin()->first == 38);
  for (const auto& [length, count] : bracketed)
    CHECK(std::abs(count - (length == 3 ? 300 : 100)) < (length == 3 ? 80 : 45));
}

TEST_CASE("arithmetic: examples are fixed, for any number of threads") {
  CHECK(hashes("arithmetic", {}, 100) ==
        std::vector<std::string>{"e9968bb049620580bffc2b02024cbe35",
                                 "0b4580f7989d07fe87f9808e2b0a6793",
                                 "d9e7930e0863d9250f13e728d01054c0"});
  CHECK(hashes("arithmetic", {{"brackets", true}}, 100) ==
        std::vector<std::string>{"dec9d1c2ff2552abb3afc2a9ad68fa7f",
                                 "8ea6f654396228904381fbad65287b70",
                                 "bc2f5c1bcaf053d9764a92d5a10a9d10"});
}

TEST_CASE("arithmetic: options out of range are refused") {
  const auto message = [](const Settings& settings) {
    return message_of<ConfigError>([&] { make("arithmetic", settings); });
  };
  CHECK_THAT(message({{"modulus", 1}}), Contains("data.modulus"));
  CHECK_THAT(message({{"length", 2}}), Contains("data.length"));
  CHECK_THAT(message({{"min_length", 2}}), Contains("data.min_length") && Contains("at least 3"));
}

#include <map>
#include <set>

#include "tests/data/examples.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;
using Catch::Contains;

namespace {

// The targets of tokens in which keys (below `keys`) stand before their values: those of the keys that
// occurred before, and of the last token.
Row recall_oracle(const Row& tokens, int32_t keys, int32_t values, bool multi_query) {
  Row targets(tokens.size(), ignore_index);
  std::map<int32_t, int32_t> value_of;
  const auto is_key = [&](int32_t token) { return token < keys; };
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!is_key(tokens[i])) continue;
    const bool last = i + 1 == tokens.size(), seen = value_of.contains(tokens[i]);
    if (last || (multi_query && seen)) targets[i] = value_of.at(tokens[i]);
    if (!last && tokens[i + 1] >= keys && tokens[i + 1] < values)
      value_of.emplace(tokens[i], tokens[i + 1]);
  }
  return targets;
}

// Next tokens, where a target is not ignored.
bool are_next(const Example& e) {
  bool right = true;
  for (size_t i = 0; i + 1 < e.tokens.size(); ++i) right &= e.targets[i] == e.tokens[i + 1];
  return right;
}

}  // namespace

TEST_CASE(
    "in_context_recall, noisy_recall: the oracle solves every example; training has all targets") {
  const bool noisy = GENERATE(false, true), multi_query = GENERATE(true, false);
  INFO("noisy " << noisy << " multi_query " << multi_query);
  const char* const name = noisy ? "noisy_recall" : "in_context_recall";
  const Task task = make(name, {{"multi_query", multi_query}});
  const int32_t plain = 16 - !multi_query, keys = plain / 2;
  CHECK(task.info.vocabulary == (noisy ? 32 : 16));
  CHECK(task.info.causal);
  CHECK(task.info.max_length == 128 - multi_query);
  std::set<int32_t> tokens;
  double noise = 0, places = 0;
  for (const char* const split : {"validation", "test"})
    for (const Example& e : examples(task.split(split), 200)) {
      REQUIRE(std::ssize(e.tokens) == task.info.max_length);
      REQUIRE(e.targets == recall_oracle(e.tokens, keys, plain, multi_query));
      tokens.insert(e.tokens.begin(), e.tokens.end());
      for (size_t i = 0; i + 4 < e.tokens.size(); i += 2)
        places += 1, noise += e.tokens[i] >= plain && e.tokens[i] < plain + 16;
    }
  CHECK(std::ssize(tokens) == task.info.vocabulary);
  // One pair of 64 never is noise. 25,000 places: a standard deviation of 0.0025.
  CHECK(noise / places == Approx(noisy ? 0.2 * 62. / 63 : 0).margin(0.012));
  for (const Example& e : examples(*task.train, 50)) CHECK(are_next(e));
  const Task answers = make(name, {{"multi_query", multi_query}, {"train_loss", "answers"}});
  for (const Example& e : examples(*answers.train, 50))
    CHECK(e.targets == recall_oracle(e.tokens, keys, plain, multi_query));
}

TEST_CASE("in_context_recall: keys and values are uniform, and one key remains under much noise") {
  const Task task = make("in_context_recall", {{"validation_size", 2000}});
  std::vector<double> keys(8), values(8);
  for (const Example& e : examples(*task.validation, 2000)) {
    ++keys[static_cast<size_t>(e.tokens[0])];
    ++values[static_cast<size_t>(e.tokens[1] - 8)];
  }
  // 7 degrees of freedom, 1 in 1000.
  CHECK(chi_square(keys, std::vector(8, 250.)) <= 24.3);
  CHECK(chi_square(values, std::vector(8, 250.)) <= 24.3);
  const Task noisy = make("noisy_recall", {{"frac_noise", 0.999}, {"length", 16}});
  for (const Example& e : examples(*noisy.test, 200)) {
    CHECK(e.targets == recall_oracle(e.tokens, 8, 16, true));
    CHECK(e.targets.back() != ignore_index);
  }
}

TEST_CASE("fuzzy_recall: answers follow their keys earlier, unless their place is behind the end") {
  const bool multi_query = GENERATE(true, false);
  const Task task = make("fuzzy_recall", {{"multi_query", multi_query}, {"test_size", 2000}});
  CHECK(task.info.max_length == 128);
  const int32_t plain = multi_query ? 15 : 14, keys = plain / 2, pad = plain;
  double unknown = 0;
  for (const Example& e : examples(*task.test, 2000)) {
    REQUIRE(e.tokens.size() == 128);
    // The asked key: three tokens at the end, before the values that are targets.
    size_t end = e.tokens.size();
    while (e.tokens[end - 1] >= keys) --end;
    const Row asked(e.tokens.begin() + static_cast<std::ptrdiff_t>(end) - 3,
                    e.tokens.begin() + static_cast<std::ptrdiff_t>(end));
    CHECK(std::set<int32_t>(asked.begin(), asked.end()).size() == 3);
    Row answer;
    for (size_t i = end - 1; i < e.targets.size(); ++i) answer.push_back(e.targets[i]);
    CHECK((answer.size() >= 1 && answer.size() <= 3));
    Row pair = asked;
    pair.insert(pair.end(), answer.begin(), answer.end());
    const auto behind = e.tokens.begin() + static_cast<std::ptrdiff_t>(end) - 3;
    unknown += std::search(e.tokens.begin(), behind, pair.begin(), pair.end()) == behind;
    // Padding is in front.
    const auto first =
        std::find_if(e.tokens.begin(), e.tokens.end(), [&](int32_t token) { return token != pad; });
    CHECK(std::find(first, e.tokens.end(), pad) == e.tokens.end());
  }
  // The pair is placed at random among 120 to 116 positions, of which the last few are never reached.
  CHECK(unknown > 0);
  CHECK(unknown / 2000 < 0.1);
  // In training, keys have 1 to 3 tokens; in validation and test, 3.
  const auto first_run = [&](const Example& e) {
    const auto begin =
        std::find_if(e.tokens.begin(), e.tokens.end(), [&](int32_t token) { return token != pad; });
    return std::find_if(begin, e.tokens.end(), [&](int32_t token) { return token >= keys; }) -
           begin;
  };
  std::map<std::ptrdiff_t, int> training, test;
  for (const Example& e : examples(*task.train, 900)) ++training[first_run(e)];
  for (const Example& e : examples(*task.test, 300)) ++test[first_run(e)];
  CHECK(training.size() == 3);
  for (const auto& [size, count] : training) CHECK(std::abs(count - 300) < 60);
  CHECK(test.size() == 1);
  CHECK(test.contains(3));
}

TEST_CASE("memorization: values are the same in every example and split, and differ") {
  const Task task = make("memorization", {{"noise_vocab_size", 16}, {"frac_noise", 0.2}});
  std::map<int32_t, int32_t> value_of;
  double noise = 0, places = 0;
  for (const char* const split : {"train", "validation", "test"})
    for (const Example& e : examples(task.split(split), 250))
      for (size_t i = 0; i < e.tokens.size(); i += 2) {
        CHECK(e.targets[i] == ignore_index);
        ++places;
        if (e.targets[i + 1] == ignore_index) {
          ++noise;
          CHECK((e.tokens[i] >= 239 && e.tokens[i] < 255 && e.tokens[i + 1] >= 239));
          continue;
        }
        CHECK(e.tokens[i + 1] == 255);
        CHECK((e.tokens[i] < 119 && e.targets[i + 1] >= 119 && e.targets[i + 1] < 239));
        CHECK(value_of.emplace(e.tokens[i], e.targets[i + 1]).first->second == e.targets[i + 1]);
      }
  CHECK(value_of.size() == 119);
  std::set<int32_t> values;
  for (const auto& [key, value] : value_of) values.insert(value);
  CHECK(values.size() == 119);
  CHECK(noise / places == Approx(0.2 * 15 / 16).margin(0.02));
  // Another seed gives other values to the same keys.
  int64_t same = 0, common = 0;
  for (const Example& e : examples(*make("memorization", {{"noise_vocab_size", 16}}, 2).train, 100))
    for (size_t i = 0; i < e.tokens.size(); i += 2)
      ++common, same += value_of.at(e.tokens[i]) == e.targets[i + 1];
  CHECK(same < common / 10);
}

TEST_CASE("compression: targets are the tokens; the model must tell them from the last") {
  const Task task = make("compression", {});
  CHECK(task.info.from_last);
  std::vector<double> counts(15);
  for (const Example& e : examples(*task.train, 500)) {
    REQUIRE(e.tokens.size() == 32);
    CHECK(e.targets == e.tokens);
    CHECK(e.tokens.back() == 15);
    for (size_t i = 0; i < 31; ++i) ++counts[static_cast<size_t>(e.tokens[i])];
  }
  CHECK(chi_square(counts, std::vector(15, 500 * 31 / 15.)) <= 36.1);  // 14 degrees, 1 in 1000
}

TEST_CASE("mad: examples are fixed, for any number of threads") {
  using Hashes = std::vector<std::string>;
  CHECK(hashes("in_context_recall", {}, 100) == Hashes{"bf3f5230b5f1b012c05614b9efa648c8",
                                                       "05e93c5d8f81c4ba89e46a6bbca9c5bf",
                                                       "9791b75cec41eccc12416b5d9d51b5f2"});
  CHECK(hashes("noisy_recall", {}, 100) == Hashes{"84d97e7d07945899b0fd167a220cd43e",
                                                  "27f80c8876ad0ade88c439c402527799",
                                                  "a5f493fd87cd3169159179062a1f55c3"});
  CHECK(hashes("fuzzy_recall", {}, 100) == Hashes{"4fa79f9330773fe3442e0ed72aa2ab04",
                                                  "a378ad376f2bc203b23852d785ad646c",
                                                  "48eb4f60faf247416b1ba80e6a6ac9b0"});
  CHECK(hashes("memorization", {}, 100) == Hashes{"113b0ea8f2e3b3c4f55687a4e85b3bb2",
                                                  "ca73d7f3c41a38f5e0244e18584e7ba7",
                                                  "ea561ecb45f2c221c9b2f8e6f689e80a"});
  CHECK(hashes("compression", {}, 100) == Hashes{"be87867c71fb2ba407741b31d56e093f",
                                                 "375d0d888aacf86f92f2c6946b285c52",
                                                 "3a7d2723792bde048beed09a82178c8c"});
}

TEST_CASE("mad: options out of range are refused") {
  const auto message = [](const char* task, const Settings& settings) {
    return message_of<ConfigError>([&] { make(task, settings); });
  };
  CHECK_THAT(message("in_context_recall", {{"length", 127}}),
             Contains("data.length") && Contains("even"));
  CHECK_THAT(message("in_context_recall", {{"frac_noise", 0.5}}),
             Contains("data.frac_noise") && Contains("noise_vocab_size"));
  CHECK_THAT(message("noisy_recall", {{"vocabulary", 17}}),
             Contains("data.vocabulary") && Contains("at least 18"));
  CHECK_THAT(message("fuzzy_recall", {{"k_motif_size", 8}}),
             Contains("data.k_motif_size") && Contains("for keys, 7"));
  CHECK_THAT(message("fuzzy_recall", {{"length", 18}}),
             Contains("data.length") && Contains("more than 3"));
  CHECK_THAT(message("memorization", {{"vocabulary", 18}, {"noise_vocab_size", 16}}),
             Contains("data.vocabulary") && Contains("at least 19"));
  CHECK_THAT(message("compression", {{"vocabulary", 17}, {"noise_vocab_size", 16}}),
             Contains("data.vocabulary") && Contains("at least 18"));
}

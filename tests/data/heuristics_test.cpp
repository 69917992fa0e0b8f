#include "longhand/data/heuristics.h"

#include <cmath>

#include "longhand/data/in_memory.h"
#include "longhand/data/listops.h"
#include "tests/data/examples.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;

namespace {

const Heuristic& named(const std::vector<Heuristic>& all, const std::string& name) {
  for (const Heuristic& each : all)
    if (each.name == name) return each;
  FAIL("no heuristic " << name);
  return all[0];
}
double accuracy(const std::vector<Heuristic>& all, const std::string& name) {
  return named(all, name).accuracies.all.value().mean;
}

}  // namespace

TEST_CASE("heuristics: the majority and the root operator of listops") {
  Sequences train, test;
  const std::vector<uint8_t> low = listops::parse("[MIN 1 2 ]"),
                             high = listops::parse("[MAX 1 2 ]");
  for (const int c : {1, 1, 1, 2, 2}) train.add(low, c);
  for (const int c : {2, 2}) train.add(high, c);
  for (const int c : {1, 1, 2}) test.add(low, c);
  for (const int c : {2}) test.add(high, c);
  Task task;
  task.info = {
      .name = "listops", .vocabulary = listops::vocabulary, .classes = 10, .max_length = 4};
  task.train = in_memory(train);
  task.test = in_memory(test);
  const auto h = heuristics(task);
  CHECK(accuracy(h, "majority") == 0.5);        // 2
  CHECK(accuracy(h, "root operator") == 0.75);  // 1 after MIN, 2 after MAX
  const auto& by_root = named(h, "root operator").accuracies.by_group.at("root operator");
  CHECK(by_root.at("MIN").targets == 3);
  CHECK(by_root.at("MIN").correct == 2);
  CHECK(by_root.at("MAX").value().mean == 1);

  // The published task: root operators alone give 36 %, no more than published models reach.
  const Task real = make("listops", {{"train_size", 6000}});
  const auto found = heuristics(real);
  CHECK(std::abs(accuracy(found, "majority") - 0.168) <= 0.02);
  CHECK(std::abs(accuracy(found, "root operator") - 0.361) <= 0.025);
  CHECK(accuracy(found, "length") < accuracy(found, "root operator"));
  CHECK(named(found, "majority").accuracies.by_group.at("root operator").size() == 4);
  CHECK(heuristics(real, {.limit = 100})[0].accuracies.all.targets == 100);
}

TEST_CASE("heuristics: chance among the values of mqar, by distance and by pairs") {
  const Settings settings = {{"length", 64},          {"pairs", 4},
                             {"vocabulary", 64},      {"train_size", 300},
                             {"validation_size", 10}, {"test_size", 300}};
  const Task task = make("mqar", settings);
  const auto h = heuristics(task);
  CHECK(accuracy(h, "values shown") == Approx(0.25));
  CHECK(accuracy(h, "majority") <= 0.1);
  const Accuracies& shown = named(h, "values shown").accuracies;
  CHECK(shown.all.targets == 1200);
  CHECK(shown.by_group.at("pairs").at("4").targets == 1200);
  int64_t targets = 0;
  for (const auto& [range, of] : shown.by_group.at("distance")) targets += of.targets;
  CHECK(targets == 1200);
  CHECK(shown.by_group.at("distance").contains("2 to 3"));
  // An oracle answers all, in every group.
  const Accuracies oracle = accuracies(task.info, *task.test, [](const Batch& batch) {
    const auto t = batch.targets.to_vector<int32_t>();
    return std::vector<double>(t.size() - std::count(t.begin(), t.end(), ignore_index), 1.0);
  });
  for (const auto& [range, of] : oracle.by_group.at("distance")) CHECK(of.value().mean == 1);
}

TEST_CASE("heuristics: chance among the values of mqar_stacked and mqar_overwrite") {
  const Settings sizes = {{"train_size", 50}, {"validation_size", 10}, {"test_size", 2000}};
  const auto with = [&](Settings settings) {
    settings.insert(settings.end(), sizes.begin(), sizes.end());
    return settings;
  };
  const auto stacked =
      heuristics(make("mqar_stacked", with({{"length", 32}, {"pairs", 2}, {"passes", 2}})));
  CHECK(accuracy(stacked, "values shown") == Approx((1. / 2 + 1. / 4) / 2));
  const auto& so_far = named(stacked, "values shown").accuracies.by_group.at("pairs so far");
  CHECK(so_far.at("2 to 3").value().mean == Approx(0.5));
  CHECK(so_far.at("4 to 7").value().mean == Approx(0.25));
  // The second pass of the two pairs ends right before the queries.
  CHECK(named(stacked, "majority").accuracies.by_group.at("distance").contains("2 to 3"));

  // Each of two keys: not overwritten with probability 1/4, once with 1/2, twice with 1/4.
  const auto overwritten =
      heuristics(make("mqar_overwrite", with({{"length", 32}, {"pairs", 2}, {"overwrites", 2}})));
  CHECK(accuracy(overwritten, "values shown") == Approx((1. / 2 + 1. / 4) / 2));
  CHECK(std::abs(accuracy(overwritten, "first value") - (1 + 1. / 4) / 2) <= 0.02);
  CHECK(std::abs(accuracy(overwritten, "any value") - (1 + 7. / 12) / 2) <= 0.02);
  for (const auto& [name, of_two] : {std::pair{"first value", 0.0}, {"any value", 0.5}}) {
    const auto& by_values = named(overwritten, name).accuracies.by_group.at("values of the key");
    CHECK(by_values.at("1").value().mean == 1);
    CHECK(by_values.at("2").value().mean == Approx(of_two));
    CHECK(by_values.size() == 3);
  }
}

TEST_CASE("heuristics: symbols without their order, bits without the first") {
  const auto found = [](const std::string& task, Settings settings) {
    settings.insert(settings.end(),
                    {{"train_size", 2000}, {"validation_size", 10}, {"test_size", 2000}});
    return heuristics(make(task, settings));
  };
  const auto induction = found("induction", {{"length", 18}, {"symbols", 4}});
  CHECK(std::abs(accuracy(induction, "tokens shown") - (1 + 15. / 4) / 16) <= 0.01);
  CHECK(std::abs(accuracy(induction, "current token") - 0.25) <= 0.05);
  CHECK(named(induction, "majority").accuracies.by_group.at("distance").contains("16 to 31"));
  const auto copy = found("copy", {{"length", 32}, {"count", 8}});
  CHECK(std::abs(accuracy(copy, "tokens shown") - (1 + 7. / 8) / 9) <= 0.01);
  const auto parity = found("parity", {{"length", 32}});
  CHECK(std::abs(accuracy(parity, "majority") - 0.5) <= 0.02);
  CHECK(std::abs(accuracy(parity, "last bits") - (8 + 24. / 2) / 32) <= 0.02);
  const auto& by_place = named(parity, "last bits").accuracies.by_group.at("position");
  CHECK(by_place.at("4 to 7").value().mean == 1);
  CHECK(std::abs(by_place.at("8 to 15").value().mean - 0.5) <= 0.02);
}

TEST_CASE("heuristics: a bag of tokens, the current token") {
  // Class 1 has more of token 2, in any order.
  Sequences sequences;
  for (int i = 0; i < 40; ++i) {
    std::vector<uint8_t> tokens(10, 1);
    for (int j = 0; j < (i % 2 ? 6 : 3); ++j) tokens[(3 * j + i) % 10] = 2;
    sequences.add(tokens, i % 2);
  }
  Task task;
  task.info = {.name = "words", .vocabulary = 3, .classes = 2, .bytes = true, .max_length = 10};
  task.train = in_memory(sequences);
  task.test = in_memory(sequences);
  const auto h = heuristics(task);
  CHECK(accuracy(h, "bag of bytes") == 1);
  CHECK(accuracy(h, "majority") == 0.5);
  CHECK(accuracy(h, "length") == 0.5);
  CHECK(named(h, "majority").accuracies.by_group.at("length").contains("8 to 15"));

  const Task copy = make("copy", {{"length", 32},
                                  {"count", 8},
                                  {"train_size", 50},
                                  {"validation_size", 10},
                                  {"test_size", 50}});
  const auto per_token = heuristics(copy);
  CHECK(accuracy(per_token, "current token") <= 0.2);
  CHECK(named(per_token, "current token").accuracies.by_group.contains("position"));
  CHECK_THROWS_AS(heuristics({}), Error);
}

// Few enough tokens to count by hand.
TEST_CASE("heuristics: classes of sequences, by hand") {
  using Rows = std::vector<std::pair<std::vector<uint8_t>, int>>;
  const auto dataset = [](const Rows& rows) {
    Sequences sequences;
    for (const auto& [tokens, target] : rows) sequences.add(tokens, target);
    return in_memory(sequences);
  };
  Task task;
  task.info = {.name = "words", .vocabulary = 4, .classes = 2, .max_length = 3};
  task.train = dataset({{{1, 1, 1, 1, 2}, 0}, {{1}, 0}, {{2, 3}, 1}, {{2, 2, 3}, 1}});
  task.test =
      dataset({{{1, 2}, 0}, {{2, 1, 1}, 0}, {{3, 1}, 1}, {{2}, 0}, {{1, 1, 2, 2, 2, 2, 2}, 1}});
  const auto h = heuristics(task);
  CHECK(accuracy(h, "majority") == Approx(3. / 5));  // both classes are as frequent: 0, the first
  CHECK(accuracy(h, "length") == Approx(2. / 5));    // of 1 and 5: 0, of 2 and 3: 1, others: 0
  CHECK(accuracy(h, "first token") == Approx(1. / 5));  // after 1: 0, after 2: 1, after 3: 0
  // Tokens 1, 2 and 3, one more than counted: 6, 2 and 1 of 10 in class 0; 1, 4 and 3 of 9 in class 1.
  //   1 2:    6 2 / 10^2 > 1 4 / 9^2: 0, right      2 1 1:  2 6 6 / 10^3 > 4 1 1 / 9^3: 0, right
  //   3 1:    1 6 / 10^2 > 3 1 / 9^2: 0, wrong      2:      2 / 10 < 4 / 9: 1, wrong
  //   1 1 2 2 2 2 2:  6^2 2^5 / 10^7 < 4^5 / 9^7: 1, right, as the smaller sum decides
  CHECK(accuracy(h, "bag of tokens") == Approx(3. / 5));
}

TEST_CASE("heuristics: classes of tokens, by hand") {
  // One sequence; targets of 0 do not count.
  struct One final : Dataset {
    Row tokens, targets;
    One(Row of_tokens, Row of_targets)
        : tokens(std::move(of_tokens)), targets(std::move(of_targets)) {
      std::replace(targets.begin(), targets.end(), 0, ignore_index);
    }
    int64_t size() const override { return 1; }
    int64_t length(int64_t) const override { return static_cast<int64_t>(tokens.size()); }
    Batch collate(std::span<const int64_t>) const override {
      const Shape shape{1, length(0)};
      return {Tensor::from(tokens, shape), Tensor::from(targets, shape), {}};
    }
  };
  const auto found = [](const char* name, int64_t vocabulary, const One& train, const One& test) {
    Task task;
    task.info = {.name = name, .vocabulary = vocabulary, .classes = vocabulary, .per_token = true};
    task.train = std::make_unique<One>(train);
    task.test = std::make_unique<One>(test);
    return heuristics(task);
  };
  // Keys 1 and 2, values 4 to 7: key 1 has the values 4 and 6, key 2 has 5.
  const One recall({1, 4, 2, 5, 1, 6, 0, 1, 2}, {0, 0, 0, 0, 0, 0, 0, 6, 5});
  const auto overwrite = found("mqar_overwrite", 8, recall, recall);
  CHECK(accuracy(overwrite, "values shown") == Approx(1. / 3));
  CHECK(accuracy(overwrite, "first value") == 0.5);
  CHECK(accuracy(overwrite, "any value") == 0.75);
  CHECK(accuracy(overwrite, "current token") == 1);  // of the same sequence
  CHECK(accuracy(found("mqar", 8, recall, recall), "values shown") == 0.5);
  // After the marker 3, among 1, 2 and 1.
  const One induction({3, 1, 2, 1, 3}, {0, 0, 0, 0, 1});
  CHECK(accuracy(found("induction", 4, induction, induction), "tokens shown") == Approx(2. / 3));
  // After a first bit 1: 1. After the bits 1 1, which are new: 1, the most frequent target.
  const auto bits = found("parity", 3, {{1, 2, 1}, {1, 1, 2}}, {{1, 1}, {1, 2}});
  CHECK(accuracy(bits, "last bits") == 0.5);
}

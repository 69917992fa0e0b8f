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

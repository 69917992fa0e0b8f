#include "tests/data/examples.h"

using namespace longhand;
using namespace longhand::data;
using namespace longhand::test;

TEST_CASE("masked: masks replace targets, other tokens are those of the task") {
  const auto [name, causal] =
      GENERATE(table<std::string, bool>({{"mqar", false}, {"in_context_recall", true}}));
  INFO(name);
  const Task plain = make(name, {}), task = make(name, {{"masked", 0.15}});
  CHECK(plain.info.causal == causal);
  CHECK(task.info.vocabulary == plain.info.vocabulary + 1);
  CHECK(task.info.classes == plain.info.vocabulary);
  CHECK(task.info.per_token);
  CHECK_FALSE(task.info.causal);
  const auto mask = static_cast<int32_t>(plain.info.vocabulary);
  double replaced = 0, tokens = 0;
  for (const char* const split : {"train", "validation", "test"})
    for (int64_t i = 0; i < 300; ++i) {
      const Example from = example(plain.split(split), i), e = example(task.split(split), i);
      REQUIRE(e.tokens.size() == from.tokens.size());
      for (size_t j = 0; j < e.tokens.size(); ++j) {
        const bool hidden = e.tokens[j] == mask;
        REQUIRE(e.targets[j] == (hidden ? from.tokens[j] : ignore_index));
        if (!hidden) REQUIRE(e.tokens[j] == from.tokens[j]);
        replaced += hidden;
      }
      tokens += static_cast<double>(e.tokens.size());
    }
  const double one_at_least = 0.85 * 900 / tokens;  // of every example one token is certain
  CHECK(replaced / tokens == Approx(0.15 + one_at_least).margin(0.01));
}

TEST_CASE("masked: classes of sequences, padding, and one target at least") {
  const Task task = make("arithmetic", {{"masked", 0.001}});
  const Batch batch = task.train->collate(indices_from(0, 200));
  REQUIRE(batch.lengths.defined());
  bool seen = true;
  for (const ExampleView& e : examples_of(batch)) {
    const auto targets =
        std::ranges::count_if(e.targets, [](int32_t t) { return t != ignore_index; });
    seen &= targets >= 1 && targets <= 3;
  }
  CHECK(seen);
  // What follows the end of a sequence is neither masked nor a target.
  CHECK(count_targets(batch.targets) <= 250);
  CHECK(task.train->fingerprint() != make("arithmetic", {{"masked", 0.002}}).train->fingerprint());
  CHECK(task.train->fingerprint() != make("arithmetic", {}).train->fingerprint());
  const Task images =
      make("listops", {{"masked", 0.1}, {"train_size", 5}, {"max_length", 60}, {"min_length", 20}});
  CHECK(images.train->collate(indices_from(0, 5)).targets.rank() == 2);
  hashes("mqar", {{"masked", 0.15}}, 50);
}

// Searches: how the range grows, which trials end early, and what all seeds are trained with.
#include "longhand/train/lab/search.h"

#include <map>

#include "longhand/core/error.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/results.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;
using longhand::test::message_of;

namespace {

const std::string one_variant = R"(
[model]
d_model = 8
heads = 2
layers = 1

[data]
task = "copy"
length = 8
count = 3

[train]
steps = 100
eval_every = 10
)";

/// A sweep of one variant with a search, and states of its cells.
struct SearchOfOne {
  explicit SearchOfOne(const std::string& search, const std::string& sweep_options = "seeds = 3")
      : sweep(Sweep::parse("[sweep]\n" + sweep_options + "\n[search]\n" + search + one_variant,
                           "s.toml")),
        grid(expand(sweep)) {
    for (const SweepCell& cell : grid.cells) states[cell.hash];
  }

  /// A cell with evaluations; with the last step it has ended.
  void train(const SweepCell& cell, const std::map<int64_t, double>& accuracies) {
    CellState& state = states.at(cell.hash);
    for (const auto& [step, accuracy] : accuracies) {
      state.evaluations[step] = {1 - accuracy, accuracy};
      if (step < 100) continue;
      state.summary.emplace();
      state.summary->status = "finished";
      state.validation = state.evaluations[step];
    }
  }
  void train(size_t trial, const std::map<int64_t, double>& accuracies) {
    train(grid.searches(0, trial)[0], accuracies);
  }
  void fail(size_t trial) {
    states.at(grid.searches(0, trial)[0].hash).status = CellStatus::diverged;
  }

  SearchState state() const { return search_state(grid, 0, states); }
  /// Trials that are to be trained, with the steps to train them to.
  std::map<size_t, int64_t> tasks() const {
    std::map<size_t, int64_t> out;
    for (const CellTask& task : state().tasks) out[task.cell->trial] = task.until;
    return out;
  }

  Sweep sweep;
  Grid grid;
  CellStates states;
};

using Until = std::map<size_t, int64_t>;

}  // namespace

TEST_CASE("a best value at the end of a range is said to be there, unless nothing is better") {
  const auto summary = [](double best) {
    SearchOfOne s("optimizer.lr = [1e-3, 2e-3, 4e-3]\n", "seeds = 1");
    for (size_t trial = 0; trial < 3; ++trial)
      s.train(trial, {{100, best - 0.1 * static_cast<double>(2 - trial)}});
    const test::TemporaryDirectory folder;
    for (const SweepCell& cell : s.grid.cells) {
      std::filesystem::create_directories(cell_directory(folder.path(), cell));
      test::write_text(cell_directory(folder.path(), cell) / "config.toml",
                       effective_config(Config::parse(cell.config, "cell.toml"), nullptr));
    }
    return sweep_results(s.grid, s.states, folder.path(), "").summary;
  };
  CHECK_THAT(summary(0.9), Contains("of optimizer.lr was best for: ") && Contains("may be better"));
  CHECK_THAT(summary(1), !Contains("may be better"));
}

TEST_CASE("the range of a search grows while its first or last value is the best") {
  SearchOfOne s("optimizer.lr = [1e-3, 2e-3, 4e-3]\nextend = 2\n");
  REQUIRE(s.grid.trials == std::vector<std::string>{"lr=0.00025", "lr=5e-04", "lr=0.001",
                                                    "lr=0.002", "lr=0.004", "lr=0.008",
                                                    "lr=0.016"});
  CHECK(s.tasks() == Until{{2, 0}, {3, 0}, {4, 0}});
  s.train(2, {{100, 0.2}});
  s.train(3, {{100, 0.3}});
  CHECK(s.tasks() == Until{{4, 0}});
  s.train(4, {{100, 0.4}});
  CHECK(s.tasks() == Until{{5, 0}});
  CHECK_FALSE(s.state().best);
  SECTION("until a value within it is the best") {
    s.train(5, {{100, 0.35}});
    CHECK(s.tasks().empty());
    CHECK(s.state().best == 4u);
  }
  SECTION("until two are equal, of which the one with the lower loss is taken") {
    s.train(5, {{100, 0.4}});
    CHECK(s.tasks().empty());
    CHECK(s.state().best == 4u);
    s.states.at(s.grid.searches(0, 5)[0].hash).validation->loss = 0.1;
    CHECK(s.state().best == 5u);
  }
  SECTION("until a run fails") {
    s.fail(5);
    CHECK(s.tasks().empty());
    CHECK(s.state().best == 4u);
  }
  SECTION("until its values are used up") {
    s.train(5, {{100, 0.5}});
    CHECK(s.tasks() == Until{{6, 0}});
    s.train(6, {{100, 0.6}});
    CHECK(s.tasks().empty());
    CHECK(s.state().best == 6u);
  }
}

TEST_CASE("the range grows downwards, too, and not where no value learns") {
  SearchOfOne s("optimizer.lr = [1e-3, 2e-3, 4e-3]\nextend = 1\n");
  for (const size_t trial : {1, 2, 3}) s.train(trial, {{100, 0.1}});
  CHECK(s.tasks().empty());
  s.train(1, {{100, 0.2}});
  CHECK(s.tasks() == Until{{0, 0}});
}

TEST_CASE("the worse half of the trials ends at each rung") {
  SearchOfOne s("optimizer.lr = [1e-3, 2e-3, 4e-3, 8e-3, 16e-3]\nhalving = [0.25, 0.5]\n");
  CHECK(s.grid.searches(0, 0)[0].rungs == std::vector<int64_t>{20, 50});
  CHECK(s.tasks() == Until{{0, 20}, {1, 20}, {2, 20}, {3, 20}, {4, 20}});
  for (const size_t trial : {0, 1, 2, 3})
    s.train(trial, {{10, 0.1 * static_cast<double>(trial)}, {20, 0.1}});
  CHECK(s.tasks() == Until{{4, 20}});
  s.fail(4);
  // The best evaluations count: 0.1, 0.1, 0.2 and 0.3; of the equal ones the first remains.
  CHECK(s.tasks() == Until{{0, 50}, {2, 50}, {3, 50}});
  CHECK(s.state().trials[1].ended == 20);
  CHECK_FALSE(s.state().trials[4].ended);  // one that failed was not compared
  // What a trial does later does not change what was decided.
  s.train(1, {{100, 0.9}});
  CHECK(s.state().trials[1].ended == 20);
  for (const size_t trial : {0, 2, 3}) s.train(trial, {{50, trial == 0 ? 0.5 : 0.4}});
  CHECK(s.tasks() == Until{{0, 0}, {2, 0}});
  CHECK(s.state().trials[3].ended == 50);
  s.train(0, {{100, 0.5}});
  s.train(2, {{100, 0.8}});
  CHECK(s.tasks().empty());
  CHECK(s.state().best == 2u);
  const CellCounts counts = count_cells(s.grid, s.states);
  CHECK(counts.cells == 7);     // five trials, one of which is a final cell, and two more seeds
  CHECK(counts.finished == 4);  // the best one is yet to be tested
  CHECK(counts.left() == 3);
}

TEST_CASE("an ended trial beside the best one lets the range grow") {
  SearchOfOne s("optimizer.lr = [1e-3, 2e-3]\nextend = 1\nhalving = [0.5]\n");
  s.train(1, {{50, 0.1}});
  s.train(2, {{50, 0.2}});
  CHECK(s.tasks() == Until{{2, 0}});
  s.train(2, {{100, 0.2}});
  CHECK(s.tasks() == Until{{3, 0}});
}

TEST_CASE("all seeds are trained around the best value, and the best of these is reported") {
  SearchOfOne s("optimizer.lr = [1e-3, 2e-3, 4e-3, 8e-3]\naround = 1\n");
  const auto finals = [&] { return s.state().finals; };
  const auto best = [&] { return s.state().reported; };
  CHECK(finals().empty());
  CHECK(runs_of(s.grid, s.states).size() == 4 + 3 * 2);
  for (const size_t trial : {0, 1, 2, 3}) s.train(trial, {{100, trial == 2 ? 0.95 : 0.85}});
  CHECK(finals() == std::vector<size_t>{1, 2, 3});
  CHECK(runs_of(s.grid, s.states).size() == 4 + 3 * 2);
  CHECK(best() == 2u);
  for (const size_t trial : {1, 2, 3})
    for (const size_t seed : {1, 2})
      s.train(s.grid.finals(0, trial)[seed], {{100, trial == 3 ? 0.95 : 0.85}});
  CHECK(best() == 3u);
  // Trial 3 is the last; with a better trial 1 the first one is needed, too.
  CHECK(finals() == std::vector<size_t>{1, 2, 3});
  for (const size_t seed : {1, 2}) s.train(s.grid.finals(0, 1)[seed], {{100, 1}});
  CHECK(finals() == std::vector<size_t>{0, 1, 2, 3});
  CHECK(best() == 2u);  // until that is trained
  for (const size_t seed : {1, 2}) s.train(s.grid.finals(0, 0)[seed], {{100, 0.5}});
  CHECK(best() == 1u);
  CHECK(window_of(s.sweep, s.state()) == 1);
  s.train(1, {{100, 0.9}});
  CHECK(window_of(s.sweep, s.state()) == 2);
  s.fail(3);
  CHECK(finals() == std::vector<size_t>{0, 1, 2});
}

TEST_CASE("a search is written as it was given") {
  const std::string search = "optimizer.lr = [0.001, 0.003]\n";
  SearchOfOne s(search + "around = 1\nextend = 2\nhalving = [0.25, 0.5]\n");
  const Sweep again = Sweep::parse(s.sweep.to_toml(), "s.toml");
  CHECK(again.to_toml() == s.sweep.to_toml());
  CHECK(again.search->axis.points.size() == 6);
  CHECK(again.search->halving == std::vector<double>{0.25, 0.5});
  const auto error = [](const std::string& text) {
    return message_of<ConfigError>([&] { SearchOfOne wrong(text); });
  };
  CHECK_THAT(error("optimizer.lr = [2e-3, 1e-3]\naround = 1\n"),
             Contains("around") && Contains("increasing order"));
  CHECK_THAT(error("model.d_mlp = [1, 2]\nextend = 2\n"), Contains("increasing order"));
  CHECK_THAT(error("optimizer.type = [\"adamw\", \"sgd\"]\nextend = 1\n"),
             Contains("values above 0"));
  CHECK_THAT(error(search + "halving = [0.5, 0.25]\n"), Contains("increasing order"));
  CHECK_THAT(error(search + "halving = [0.05]\n"),
             Contains("train.eval_every = 10") && Contains("expected one by then"));
  CHECK_THAT(error(search + "halving = 0.5\n"), Contains("such as [0.25, 0.5]"));
}

// The table of a sweep, from states of cells made here.
#include <cmath>
#include <functional>

#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/results.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;

namespace {

/// A sweep over three variants, and the test accuracies of each, by seed.
Results results_of(const std::vector<std::vector<double>>& accuracies,
                   const std::vector<int64_t>& parameters = {100, 100, 100},
                   const std::function<void(const SweepCell&, CellState&)>& change = {}) {
  const size_t seeds = accuracies.front().size();
  const Sweep sweep = Sweep::parse("[sweep]\nseeds = " + std::to_string(seeds) + R"(
metric = "accuracy"
baseline = { attention.type = "softmax" }
[[axis]]
attention.type = ["softmax", "linear", "window"]
[model]
d_model = 8
heads = 2
[data]
task = "copy"
length = 16
count = 4
)",
                                   "s.toml");
  const Grid grid = expand(sweep);
  const test::TemporaryDirectory folder;
  CellStates states;
  for (size_t v = 0; v < grid.variants.size(); ++v)
    for (size_t seed = 0; seed < seeds; ++seed) {
      const SweepCell& cell = grid.finals(v)[seed];
      std::filesystem::create_directories(cell_directory(folder.path(), cell));
      test::write_text(cell_directory(folder.path(), cell) / "config.toml",
                       effective_config(Config::parse(cell.config, "cell.toml"), nullptr));
      CellState& state = states[cell.hash];
      state.status = CellStatus::finished;
      state.summary.emplace();
      state.summary->status = "finished";
      state.summary->parameters = parameters[v];
      state.test = Score{1, accuracies[v][seed]};
      state.validation = Score{1, accuracies[v][seed] / 2};
      if (change) change(cell, state);
    }
  return sweep_results(sweep, grid, states, folder.path(), "longhand ablate s.toml");
}

double cell_at(const Table& table, size_t row, const char* column) {
  return std::get<double>(table.rows[row][table.column(column)]);
}

}  // namespace

TEST_CASE("ablation: p of paired tests, corrected for their number, and intervals within 0 … 1") {
  const Results results = results_of({{0.5, 0.6, 0.7}, {0.6, 0.71, 0.82}, {0.55, 0.67, 0.79}});
  const Table& table = results.tables.front();
  CHECK(std::holds_alternative<std::monostate>(table.rows[0][table.column("p")]));
  CHECK(cell_at(table, 1, "accuracy") == Approx(0.71));
  CHECK(cell_at(table, 1, "validation") == Approx(0.355));
  CHECK(cell_at(table, 1, "difference") == Approx(0.11));
  // With 2 degrees of freedom, p = 1 - t / sqrt(2 + t²); differences 0.10, 0.11, 0.12 and 0.05, 0.07, 0.09.
  const auto p = [](double mean, double deviation) {
    const double t = mean / deviation * std::sqrt(3);
    return 1 - t / std::sqrt(2 + t * t);
  };
  CHECK(cell_at(table, 1, "p") == Approx(2 * p(0.11, 0.01)));
  CHECK(cell_at(table, 2, "p") == Approx(p(0.07, 0.02)));
  // 0.71 ± 4.30265 0.11 / sqrt(3)
  CHECK(cell_at(table, 1, "low") == Approx(0.71 - 4.30265 * 0.11 / std::sqrt(3)).epsilon(1e-5));
  CHECK(cell_at(table, 1, "high") == Approx(0.71 + 4.30265 * 0.11 / std::sqrt(3)).epsilon(1e-5));
  CHECK(cell_at(results_of({{0.97, 0.99, 1}, {1, 1, 1}, {0, 0, 0}}).tables.front(), 0, "high") ==
        1);
}

TEST_CASE("ablation: seeds that solved a task or did not are counted") {
  const Results results = results_of({{0.1, 0.2, 0.15}, {0.1, 0.99, 0.98}, {0.2, 0.2, 0.2}});
  const Table& table = results.tables.front();
  CHECK(std::holds_alternative<std::monostate>(table.rows[1][table.column("low")]));
  CHECK(std::holds_alternative<std::monostate>(table.rows[2][table.column("low")]));
  CHECK_THAT(table.note, Catch::Contains("linear: 2 of 3 seeds solved it, 95 %: 0.21 to 0.94"));
  CHECK_THAT(results.summary,
             Catch::Contains("linear, 0.69 (2 of 3 seeds solved it, 95 %: 0.21 to 0.94)"));
}

TEST_CASE("ablation: the best of several, without an interval for a single seed") {
  CHECK(results_of({{0.5}, {0.75}, {0.25}}).summary == "Best of 3 by test accuracy: linear, 0.75.");
}

TEST_CASE("ablation: budgets that differ from those of the baseline by more than 1 % are named") {
  const Results results = results_of({{0.5}, {0.5}, {0.5}}, {1000, 1120, 1008});
  const Table& table = results.tables.front();
  const auto unequal = [&](size_t row) {
    return std::get<std::string>(table.rows[row][table.column("unequal")]);
  };
  CHECK(unequal(0).empty());
  CHECK_THAT(unequal(1), Catch::Contains("parameters +12 %"));
  CHECK_THAT(unequal(2), !Catch::Contains("parameters"));
}

TEST_CASE("ablation: times of cells that were measured otherwise are marked, and not compared") {
  // One cell of the second variant ran elsewhere, those of the third with other jobs and threads.
  const Results results =
      results_of({{0.5, 0.6}, {0.5, 0.6}, {0.5, 0.6}}, {100, 100, 100},
                 [](const SweepCell& cell, CellState& state) {
                   state.summary->step_seconds = cell.variant == 0 ? 1 : cell.nth_seed == 0 ? 2 : 4;
                   state.summary->threads = cell.variant == 2 && cell.nth_seed == 0 ? 2 : 1;
                   state.summary->host = cell.variant == 1 && cell.nth_seed == 1 ? "b" : "a";
                   state.record.jobs = cell.variant == 2 && cell.nth_seed == 1 ? 4 : 2;
                   state.record.seconds = 10 * *state.summary->step_seconds;
                 });
  const Table &variants = results.table("variants"), &cells = results.table("cells");
  CHECK(cell_at(variants, 0, "ms_per_step") == 1000);
  CHECK(cell_at(variants, 1, "ms_per_step") == 2000);
  CHECK(cell_at(variants, 1, "seconds") == 20);
  CHECK(std::holds_alternative<std::monostate>(variants.rows[2][variants.column("ms_per_step")]));
  CHECK_THAT(std::get<std::string>(variants.rows[2][variants.column("unequal")]),
             !Catch::Contains("ms"));
  CHECK_THAT(variants.note,
             Catch::Contains("Times are those of the cells measured alike (a, threads: "
                             "1, jobs: 2), not of 3 other cells."));
  std::set<std::pair<size_t, size_t>> marked;
  for (const size_t row : {3, 4, 5})
    for (const char* const column : {"ms_per_step", "seconds"})
      marked.insert({row, cells.column(column)});
  CHECK(cells.marked == marked);
  CHECK_THAT(cells.mark, Catch::Contains("a, threads: 1, jobs: 2"));
  CHECK(cells.rows[5][cells.column("jobs")] == Cell(int64_t{4}));
  CHECK(results.provenance == provenance());
}

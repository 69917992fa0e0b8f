// The table of a sweep, from states of cells made here.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/page.h"
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
  // 0.11 ± 4.30265 0.01 / sqrt(3)
  CHECK(cell_at(table, 1, "difference_high") ==
        Approx(0.11 + 4.30265 * 0.01 / std::sqrt(3)).epsilon(1e-5));
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
  CHECK(table.rows[1][table.column("solved")] == Cell(std::string("2 of 3")));
  CHECK(table.rows[0][table.column("solved")] == Cell(std::string()));
  CHECK_THAT(results.summary,
             Catch::Contains("linear, 0.69 (2 of 3 seeds solved it, 95 %: 0.21 to 0.94)"));
}

TEST_CASE("ablation: the best of several, without an interval for a single seed") {
  CHECK(results_of({{0.5}, {0.75}, {0.25}}).summary ==
        "Best of 3 by test accuracy: linear, 0.75 (one seed: chance is not excluded).");
}

TEST_CASE("ablation: the best are those that the seeds do not tell apart, for each task") {
  const auto bold = [](const Results& results) {
    const Table& table = results.table("variants");
    std::set<size_t> rows;
    for (const auto& [row, column] : table.best) {
      CHECK(column == table.column("accuracy"));
      rows.insert(row);
    }
    return rows;
  };
  // window is better than linear in two seeds of three: chance; softmax is worse in all by nearly the same.
  const Results tied = results_of({{0.5, 0.6, 0.7}, {0.8, 0.91, 0.99}, {0.82, 0.89, 0.995}});
  CHECK(bold(tied) == std::set<size_t>{1, 2});
  CHECK_THAT(tied.summary, Catch::Contains("window, 0.9017") &&
                               Catch::Contains("; not told apart by these seeds: linear."));
  CHECK(bold(results_of({{1, 1}, {1, 1}, {0.5, 0.5}})) == std::set<size_t>{0, 1});
  CHECK(bold(results_of({{0.5}, {0.75}, {0.25}})) == std::set<size_t>{1});
  // Some seeds solve it: overlapping ones are not told apart. Nothing is bold where all are equal.
  CHECK(bold(results_of({{1, 0.99, 0.98}, {0.1, 1, 0.99}, {0.1, 0.11, 0.1}})) ==
        std::set<size_t>{0, 1});
  CHECK(bold(results_of({{1, 1}, {1, 1}, {1, 1}})).empty());
  CHECK_THAT(to_markdown(with_intervals(tied.table("variants"))), Catch::Contains("| **0.9"));
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

TEST_CASE("ablation: page, CSV, JSON and LaTeX show the same numbers") {
  const Results results =
      results_of({{0.5, 0.6, 0.7}, {0.6, 0.71, 0.82}, {0.55, 0.67, 0.79}}, {1000, 1120, 1008});
  const Table& table = results.table("variants");
  const Table read = results_of_json(to_json(results), "r").table("variants");
  CHECK(read.rows == table.rows);
  // CSV by lines and fields; no text of this table holds a comma but those of the last columns.
  std::istringstream csv(to_csv(table));
  std::string line;
  std::getline(csv, line);
  const std::string html = html_report(ReportInputs{{}, {{"results.json", results}}});
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = html.find(begin) + begin.size();
  const auto page = nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
  const auto shown = std::ranges::find_if(page["tables"], [](const auto& each) {
    return each["name"] == "variants" && each["rows"] == 3;
  });
  REQUIRE(shown != page["tables"].end());
  const std::string latex = to_latex(with_intervals(table));
  for (size_t row = 0; row < 3; ++row) {
    std::getline(csv, line);
    for (const char* const name : {"accuracy", "low", "high", "validation", "parameters"}) {
      CAPTURE(row, name);
      const size_t column = table.column(name);
      const double value = *number_in(table.rows[row][column]);
      CHECK((*shown)["columns"][column]["values"][row].get<double>() ==
            Approx(value).epsilon(1e-5));
    }
    std::vector<std::string> fields(1);
    for (const char c : line)
      if (c == ',')
        fields.emplace_back();
      else
        fields.back() += c;
    CHECK(std::stod(fields[table.column("accuracy")]) == cell_at(table, row, "accuracy"));
    CHECK(std::stod(fields[table.column("low")]) == cell_at(table, row, "low"));
    const double half = cell_at(table, row, "high") - cell_at(table, row, "accuracy");
    // Two digits of the interval.
    CHECK_THAT(latex, Catch::Contains(fmt::format("{:.2f} $\\pm${:.2f}",
                                                  cell_at(table, row, "accuracy"), half)));
  }
}

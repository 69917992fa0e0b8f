// Two sweeps compared cell by cell, and folders of results.
#include "longhand/train/lab/report/paired.h"

#include <cmath>

#include "longhand/core/error.h"
#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/reader.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

struct CellOf {
  std::string variant;
  int64_t seed;
  double accuracy;
  std::string phase = "final";
};

/// The tables of a sweep that a comparison reads.
Results sweep_of(const std::vector<CellOf>& cells, const std::string& metric = "accuracy") {
  Table variants{.name = "variants", .columns = {{"variant", ""}, {metric, ""}}};
  Table table{.name = "cells",
              .columns = {{"variant", ""},
                          {"seed", ""},
                          {"phase", ""},
                          {"test_" + metric, ""},
                          {"test_examples", ""}}};
  for (const CellOf& cell : cells)
    table.rows.push_back({cell.variant, cell.seed, cell.phase, known(cell.accuracy),
                          cell.variant == "softmax" ? Cell{int64_t{50}} : Cell{}});
  return {.kind = "ablate", .title = "Sweep", .tables = {variants, table}};
}

double number(const Table& table, size_t row, const char* column) {
  return *number_in(table.rows.at(row).at(table.column(column)));
}

}  // namespace

TEST_CASE("paired: differences of cells with the same variant and seed") {
  const test::TemporaryDirectory folder;
  fs::create_directories(folder / "a");
  fs::create_directories(folder / "b");
  const double nan = std::nan("");
  test::write_text(folder / "a/results.json", to_json(sweep_of({{"softmax", 0, 0.5},
                                                                {"softmax", 1, 0.6},
                                                                {"softmax", 2, 0.7},
                                                                {"softmax", 3, 0.1},
                                                                {"linear", 0, 0.5},
                                                                {"window", 0, 0.5}})));
  // In another order; without one seed, with one more, one that is not finished, and a trial of a search.
  test::write_text(folder / "b/results.json", to_json(sweep_of({{"linear", 0, 0.25},
                                                                {"softmax", 2, 0.82},
                                                                {"softmax", 0, 0.6},
                                                                {"softmax", 1, 0.71},
                                                                {"softmax", 9, 0.9},
                                                                {"softmax", 3, nan},
                                                                {"softmax", 3, 1.0, "search"},
                                                                {"none", 0, 0.5}})));
  const ReportInputs inputs = read_inputs({folder / "a", folder / "b/results.json"});
  REQUIRE(inputs.results.size() == 2);
  const std::filesystem::path first = folder / "a";
  const ReportedResults& a = results_of_sweep(inputs, first);
  CHECK(&a == &inputs.results[0]);
  CHECK(&results_of_sweep(inputs, folder / "b") == &inputs.results[1]);
  const Results found = paired_results(inputs.results[1], a);
  const Table& table = found.tables.front();
  REQUIRE(table.rows.size() == 2);
  CHECK(table.rows[0][0] == Cell(std::string("softmax")));
  CHECK(number(table, 0, "seeds") == 3);
  CHECK(number(table, 0, "baseline") == Approx(0.6));
  CHECK(number(table, 0, "accuracy") == Approx(0.71));
  // As in the table of the sweep, with the sample of test examples.
  CHECK(number(table, 0, "accuracy_low") ==
        Approx(mean_of({{0, 0.6}, {1, 0.71}, {2, 0.82}}, true, 50).low));
  // Differences 0.10, 0.11, 0.12: 0.11 ± 4.30265 0.01 / sqrt(3)
  CHECK(number(table, 0, "difference") == Approx(0.11));
  CHECK(number(table, 0, "difference_low") ==
        Approx(0.11 - 4.30265 * 0.01 / std::sqrt(3)).epsilon(1e-5));
  CHECK(number(table, 0, "p") == Approx(0.00274).epsilon(0.01));
  // One seed: a difference without an interval.
  CHECK(number(table, 1, "difference") == Approx(-0.25));
  CHECK(table.rows[1][table.column("difference_low")] == Cell());
  CHECK_THAT(found.summary,
             Contains("Of 2 variants that both have, 1 are better") && Contains("and 0 worse"));
  CHECK_THAT(found.title, Contains("b against ") && Contains("/a"));

  test::write_text(folder / "c.json", to_json(sweep_of({{"softmax", 0, 0.5}}, "loss")));
  test::write_text(folder / "d.json", to_json(sweep_of({{"softmax", 7, 0.5}})));
  const ReportInputs others = read_inputs({folder / "c.json", folder / "d.json"});
  CHECK_THROWS_WITH(paired_results(others.results[0], a), Contains("the metric loss"));
  CHECK_THROWS_WITH(paired_results(others.results[1], a), Contains("no finished cell in common"));
  CHECK_THROWS_WITH(results_of_sweep(others, folder / "nowhere"),
                    Contains("nowhere: no results of a sweep among the paths"));
}

TEST_CASE("report: two sweeps with equal labels stay apart") {
  const test::TemporaryDirectory folder;
  for (const char* const name : {"runs/a", "runs/b"}) fs::create_directories(folder / name);
  test::write_text(
      folder / "runs/a/results.json",
      to_json(sweep_of(
          {{"softmax", 0, 0.5}, {"softmax", 1, 0.6}, {"softmax", 2, 0.7}, {"linear", 0, 0.2}})));
  test::write_text(
      folder / "runs/b/results.json",
      to_json(sweep_of({{"softmax", 0, 0.9}, {"softmax", 1, 0.91}, {"softmax", 2, 0.95}})));
  const Board both = compare(read_inputs({folder / "runs/a", folder / "runs/b"}));
  CHECK(both.variants == std::vector<std::string>{"softmax sweep=b", "softmax sweep=a", "linear"});
  CHECK(number(both.leaderboard, 1, "score") == Approx(0.6));
  CHECK(number(both.leaderboard, 1, "seeds") == 3);
  CHECK(both.leaderboard.rows[2][both.leaderboard.column("sweep")] == Cell(std::string("a")));
  CHECK_THAT(both.summary.at(0), Contains("softmax sweep=b"));
  const Board one = compare(read_inputs({folder / "runs/a"}));
  CHECK(one.variants == std::vector<std::string>{"softmax", "linear"});
  CHECK_FALSE(one.leaderboard.find("sweep"));
}

TEST_CASE("report: a folder of results is read, as in the examples") {
  const fs::path examples = LONGHAND_SOURCE "/examples";
  for (const auto& [name, count] :
       {std::pair("ablation/results", 4), {"recall/results", 1}, {"skills/results", 1}}) {
    const ReportInputs inputs = read_inputs({examples / name});
    CHECK(inputs.results.size() == static_cast<size_t>(count));
    CHECK(inputs.runs.empty() == (count == 4));  // a sweep lists its cells
  }
  const test::TemporaryDirectory folder;
  test::write_text(folder / "other.json", "{\"tables\": 1, \"kind\": 2}");
  CHECK_THROWS_AS(read_inputs({folder.path()}), DataError);
  test::write_text(folder / "other.json", "{\"mine\": 1}");
  CHECK_THROWS_WITH(read_inputs({folder.path()}), Contains("no results (JSON files)"));
  test::write_text(folder / "results.json", "{\"kind\"");
  CHECK_THROWS_WITH(read_inputs({folder.path()}), Contains("results.json: expected results"));
}

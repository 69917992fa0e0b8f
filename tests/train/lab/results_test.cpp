// The table of a sweep, from states of cells made here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/page.h"
#include "longhand/train/lab/results.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using Json = nlohmann::json;

namespace {

/// A sweep over three variants, and the test accuracies of each, by seed.
Results results_of(const std::vector<std::vector<double>>& accuracies,
                   const std::vector<int64_t>& parameters = {100, 100, 100},
                   const std::function<void(const SweepCell&, CellState&)>& change = {},
                   const std::string& data = "task = \"copy\"\nlength = 16\ncount = 4\n") {
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
)" + data,
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
  return sweep_results(grid, states, folder.path(), "longhand ablate s.toml");
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

TEST_CASE("ablation: accuracies of state tracking are also scaled, with guessing at 0") {
  const std::vector<std::vector<double>> accuracies{{0.5}, {0.75}, {1}};
  const auto scaled = [&](const char* data) {
    const Table table = results_of(accuracies, {100, 100, 100}, {}, data).tables.front();
    CHECK_THAT(table.note, Catch::Contains("the scaled accuracy is"));
    return std::array{cell_at(table, 0, "scaled"), cell_at(table, 1, "scaled"),
                      cell_at(table, 2, "scaled")};
  };
  CHECK(scaled("task = \"parity\"\nlength = 16\n") == std::array{0.0, 0.5, 1.0});
  const auto group = scaled("task = \"group\"\nkind = \"S\"\ndegree = 3\nlength = 16\n");
  CHECK(group[0] == Approx(0.4));  // (1/2 - 1/6) / (1 - 1/6)
  CHECK(group[1] == Approx(0.7));
  CHECK(group[2] == 1);
  const Table copy = results_of(accuracies).tables.front();
  CHECK_FALSE(copy.find("scaled"));
  CHECK_THAT(copy.note, !Catch::Contains("scaled"));
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
             Catch::Contains("linear, with a test accuracy of 0.69 (2 of 3 seeds solved it, 95 %: "
                             "0.21 to 0.94), is not told apart from window and softmax."));
}

TEST_CASE("ablation: the best of several, without an interval for a single seed") {
  CHECK(results_of({{0.5}, {0.75}, {0.25}}).summary ==
        "linear has the highest test accuracy of 3 variants: 0.75 (1 seed), 0.25 above softmax. "
        "With one seed in common, chance is not excluded: train more seeds.");
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
  CHECK_THAT(tied.summary, Catch::Contains("window, with a test accuracy of 0.902") &&
                               Catch::Contains("is not told apart from linear. "));
  // Some seeds solve it: those of linear overlap with those of softmax.
  CHECK(bold(results_of({{1, 0.99, 0.98}, {0.1, 1, 0.99}, {0.1, 0.11, 0.1}})) ==
        std::set<size_t>{0, 1});
  const std::vector<double> solved(5, 1), failed(5, 0.1);
  CHECK(bold(results_of({solved, {1, 1, 1, 1, 0.1}, failed})) == std::set<size_t>{0, 1});
  // One seed tells nothing apart, and two of two that solve a task against none little. Nothing is bold where all
  // may be equal.
  CHECK(bold(results_of({{0.5}, {0.75}, {0.25}})).empty());
  CHECK(bold(results_of({{1, 1}, {1, 1}, {0.1, 0.1}})).empty());
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

TEST_CASE("ablation: segments are drawn against their lengths, whatever else their names say") {
  for (const bool recorded : {true, false}) {  // files of earlier versions have the name alone
    const Results results =
        results_of({{0.5, 0.6}, {0.5, 0.6}, {0.5, 0.6}}, {100, 100, 100},
                   [&](const SweepCell&, CellState& state) {
                     for (const auto& [name, length] :
                          {std::pair("length 3 to 40", 40), {"length 64, 8 pairs", 64}})
                       state.test->segments.push_back({name, 1, 0.5, recorded ? length : 0});
                   });
    const Table& table = results.table("segments");
    REQUIRE(table.rows.size() == 6);
    CHECK(table.rows[0][table.column("length")] == Cell(int64_t{40}));
    CHECK(table.rows[1][table.column("length")] == Cell(int64_t{64}));
    REQUIRE(table.charts.size() == 1);
    CHECK(table.charts[0].x == "length");
  }
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

namespace {

/// The fields of CSV without quotes, or the cells of a LaTeX tabular without its headings.
std::vector<std::vector<std::string>> fields_of(const std::string& text, const std::string& between,
                                                const std::string& end) {
  std::vector<std::vector<std::string>> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t stop = std::min(text.find(end, begin), text.size());
    auto& row = out.emplace_back();
    for (size_t at = begin; at <= stop;) {
      const size_t next = std::min(text.find(between, at), stop);
      row.push_back(text.substr(at, next - at));
      at = next + between.size();
    }
    begin = stop + end.size();
  }
  return out;
}

/// The number that a text begins with, of LaTeX in bold or not, and half a unit of its last digit.
std::pair<double, double> shown_number(std::string text) {
  for (const auto& [from, to] : {std::pair("\\textbf{", ""), {"$-$", "-"}, {"$", ""}})
    if (const size_t at = text.find(from); at == 0) text.replace(0, std::string(from).size(), to);
  size_t end = 0;
  const double value = std::stod(text, &end);
  const size_t e = text.find('e'), point = text.find('.');
  double unit = 1;
  if (point < end) unit = std::pow(10.0, -static_cast<double>(std::min(e, end) - point - 1));
  if (e < end) unit *= std::pow(10.0, std::stod(text.substr(e + 1, end - e - 1)));
  return {value, 0.5001 * unit};
}

}  // namespace

TEST_CASE("ablation: page, CSV, JSON and LaTeX show the same numbers") {
  const Results results =
      results_of({{0.50, 0.61, 0.70}, {0.65, 0.71, 0.82}, {0.55, 0.67, 0.79}}, {1000, 1120, 1008},
                 [](const SweepCell&, CellState& state) { state.test->examples = 200; });
  const Table& table = results.table("variants");
  CHECK(Json::parse(to_json(results))["task"] == "copy");
  const Json json = Json::parse(to_json(results))["tables"][0]["rows"];
  const auto csv = fields_of(to_csv(table), ",", "\r\n");
  const auto tabular = [](const std::string& latex) {
    const std::string begin = "\\midrule\n";
    const size_t at = latex.find(begin) + begin.size();
    return fields_of(latex.substr(at, latex.find("\\bottomrule") - at), " & ", " \\\\\n");
  };
  const auto latex = tabular(to_latex(table));
  const Table readable = with_intervals(table);
  const auto intervals = tabular(to_latex(readable));
  const test::TemporaryDirectory folder;
  test::write_text(folder / "results.json", to_json(results));
  const ReportInputs inputs = read_inputs({folder / "results.json"});
  const std::string html = html_report(inputs);
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = html.find(begin) + begin.size();
  const Json page = Json::parse(html.substr(at, html.find("</script>", at) - at))["tables"];
  const auto shown =
      std::ranges::find(page, Json("variants"), [](const Json& t) { return t["name"]; });
  const auto board =
      std::ranges::find(page, Json("leaderboard"), [](const Json& t) { return t["name"]; });
  REQUIRE((shown != page.end() && board != page.end()));
  const auto column_of = [](const Json& from, const std::string& name) {
    for (const Json& column : from["columns"])
      if (column["name"] == name) return column["values"];
    return Json();
  };
  REQUIRE(csv.size() == 4);
  REQUIRE(latex.size() == 3);
  size_t compared = 0;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const auto value = number_in(table.rows[r][c]);
      if (!value) continue;
      CAPTURE(r, table.columns[c].name);
      ++compared;
      CHECK(json[r][c].get<double>() == *value);
      const auto field = std::ranges::find(csv[0], table.columns[c].name) - csv[0].begin();
      CHECK(std::stod(csv[r + 1].at(static_cast<size_t>(field))) == *value);
      CHECK((*shown)["columns"][c]["values"][r].get<double>() == Approx(*value).epsilon(1e-5));
      const auto [number, half] = shown_number(latex[r][c]);
      CHECK(std::abs(number - *value) <= half);
    }
    // As a reader sees it: in the tabular with its interval, in the leaderboard, and in the chart.
    const std::string name = to_text(table.rows[r][0]);
    const double mean = cell_at(table, r, "accuracy"), low = cell_at(table, r, "low"),
                 high = cell_at(table, r, "high");
    const std::string& text = intervals[r][readable.column("accuracy")];
    const auto [number, half] = shown_number(text);
    CHECK(std::abs(number - mean) <= half);
    const size_t sign = text.find("$\\pm$");
    REQUIRE(sign != std::string::npos);
    const auto [width, half_of_width] = shown_number(text.substr(sign + 5));
    CHECK(std::abs(width - (high - low) / 2) <= half_of_width);
    const Json names = column_of(*board, "variant");
    const auto row = static_cast<size_t>(std::ranges::find(names, Json(name)) - names.begin());
    for (const auto& [column, value] : {std::pair("score", mean), {"low", low}, {"high", high}})
      CHECK(column_of(*board, column)[row].get<double>() == Approx(value).epsilon(1e-5));
    CHECK_THAT(html, Catch::Contains(fmt::format("<title>{}: {:.4g} ({:.4g} to {:.4g})</title>",
                                                 name, mean, low, high)));
  }
  CHECK(compared > 25);
  // The decision, too, is one.
  const Board compared_runs = compare(inputs);
  REQUIRE(compared_runs.summary.size() == 1);
  CHECK(results.summary.starts_with(compared_runs.summary[0]));
  CHECK(compared_runs.leaderboard.best.size() == table.best.size());
}

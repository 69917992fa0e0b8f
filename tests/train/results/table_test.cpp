#include "longhand/train/results/table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

namespace longhand::train {
namespace {

Table example() {
  return {
      .name = "error",
      .title = "Error",
      .note = "Of each variant.",
      .columns = {{"variant", "", 4}, {"m", "features", 4}, {"error", "error (%)", 3}},
      .rows = {{"performer", int64_t{16}, 0.123456},
               {"a_b, \"c\"", int64_t{1024}, std::numeric_limits<double>::quiet_NaN()},
               {"none|λ", Cell{}, 12345678.5}},
      .charts = {{.title = "Error", .x = "m", .y = "error", .series = {"variant"}, .log_x = true}}};
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, width_of(line));
  return widest;
}

}  // namespace

TEST_CASE("tables fit 100 columns") {
  // Headings are broken first, then text, and then the table; every value is still there.
  Table headings{.name = "a", .title = "", .columns = {{"name", ""}}, .rows = {{"x"}}};
  for (int i = 0; i < 9; ++i) {
    headings.columns.push_back({"c" + std::to_string(i), "seconds of each"});
    headings.rows[0].push_back(int64_t{1000000 + i});
  }
  CHECK(widest_line(to_text(headings)) <= 100);
  CHECK(to_text(headings).find("\n\n") == std::string::npos);

  // Words stay whole.
  Table words{.name = "w", .title = "", .columns = {{"x", "by abcdefgh"}}, .rows = {{int64_t{1}}}};
  for (int i = 0; i < 12; ++i) {
    words.columns.push_back({"c" + std::to_string(i), "by abcdefgh"});
    words.rows[0].push_back(int64_t{1});
  }
  const std::string whole = to_text(words);
  size_t times = 0;
  for (size_t at = whole.find("abcdefgh"); at != std::string::npos;
       at = whole.find("abcdefgh", at + 1))
    ++times;
  CHECK(times >= 13);

  Table text{.name = "b",
             .title = "",
             .columns = {{"run", ""}, {"loss", ""}, {"reason", ""}},
             .rows = {{std::string(150, 'r'), 0.5, "a long sentence " + std::string(99, 'x')}}};
  const std::string broken = to_text(text);
  CHECK(widest_line(broken) <= 100);
  CHECK(std::count(broken.begin(), broken.end(), 'r') == 150 + 2);
  CHECK(std::count(broken.begin(), broken.end(), 'x') == 99);

  Table wide{.name = "c", .title = "", .columns = {{"name", ""}}, .rows = {{"row"}, {"next"}}};
  for (int i = 0; i < 30; ++i) {
    wide.columns.push_back({"column_" + std::to_string(i), ""});
    for (auto& row : wide.rows) row.push_back(int64_t{i});
  }
  const std::string blocks = to_text(wide);
  CHECK(widest_line(blocks) <= 100);
  CHECK(blocks.find("\n\nname  column_") != std::string::npos);
  for (const Column& column : wide.columns) CHECK(blocks.find(column.name) != std::string::npos);

  // The texts that say what a row is are repeated as far as they fit into half of the line.
  Table named{.name = "d",
              .title = "",
              .columns = {{"name", ""}, {"kind", ""}, {"reason", ""}},
              .rows = {{std::string(20, 'n'), std::string(20, 'k'), std::string(20, 'r')}}};
  for (int i = 0; i < 10; ++i) {
    named.columns.push_back({"column_" + std::to_string(i), ""});
    named.rows[0].push_back(int64_t{i});
  }
  const std::string repeated = to_text(named);
  const auto times_of = [&](char letter) {
    const std::string row(20, letter);
    return (repeated.find(row) != std::string::npos) +
           (repeated.find(row) != repeated.rfind(row) ? 1 : 0);
  };
  CHECK(times_of('n') == 2);
  CHECK(times_of('k') == 2);
  CHECK(times_of('r') == 1);
  // Below, only rows that have a value there.
  named.rows.push_back(named.rows[0]);
  named.rows[1][0] = std::string(20, 'm');
  for (size_t i = 3; i < 13; ++i) named.rows[1][i] = Cell{};
  const std::string sparse = to_text(named);
  CHECK(sparse.find(std::string(20, 'm')) == sparse.rfind(std::string(20, 'm')));
  CHECK_THROWS_AS(to_format("html", named, named), ConfigError);
}

TEST_CASE("tables: text, Markdown, LaTeX and CSV") {
  CHECK(to_text(example()) ==
        "variant    features  error (%)\n"
        "performer        16      0.123\n"
        "a_b, \"c\"       1024        NaN\n"
        "none|λ            -   1.23e+07\n");
  CHECK(to_markdown(example()) ==
        "| variant | features | error (%) |\n"
        "| --- | ---: | ---: |\n"
        "| performer | 16 | 0.123 |\n"
        "| a_b, \"c\" | 1024 | NaN |\n"
        "| none\\|λ | - | 1.23e+07 |\n");
  CHECK(to_latex(example()) ==
        "\\begin{tabular}{lrr}\n\\toprule\n"
        "variant & features & error (\\%) \\\\\n\\midrule\n"
        "performer & 16 & 0.123 \\\\\n"
        "a\\_b, \"c\" & 1024 & NaN \\\\\n"
        "none\\textbar{}$\\lambda$ & - & 1.23e+07 \\\\\n"
        "\\bottomrule\n\\end{tabular}\n");
  CHECK(to_csv(example()) ==
        "variant,m,error\r\n"
        "performer,16,0.123456\r\n"
        "\"a_b, \"\"c\"\"\",1024,NaN\r\n"
        "none|λ,,12345678.5\r\n");
  CHECK(to_text(Cell(123456.7)) == "123457");
  CHECK(to_text(Cell(0.1234567), 2) == "0.12");
}

TEST_CASE("results: JSON is read back unchanged, and other text refused") {
  const Results results{.kind = "analyse error",
                        .title = "t",
                        .summary = "s",
                        .command = "c",
                        .machine = "m",
                        .date = "2026-01-01T00:00:00Z",
                        .version = "1",
                        .provenance = {{"commit", "c"}, {"cpu", "p"}},
                        .tables = {example()}};
  const std::string text = to_json(results);
  const Results read = results_of_json(text, "r.json");
  CHECK(to_json(read) == text);
  CHECK(read.provenance == results.provenance);
  CHECK(std::isnan(std::get<double>(read.tables[0].rows[1][2])));
  CHECK(read.tables[0].rows[0][1] == Cell(int64_t{16}));
  CHECK_THROWS_AS(results_of_json("{}", "r.json"), DataError);
  std::string changed = text;
  changed.replace(changed.find("1024"), 4, "1025");
  for (const std::string& damaged :
       {std::string("[1"), std::string(), text.substr(0, 400), changed})
    CHECK_THROWS_WITH(
        results_of_json(damaged, "r.json"),
        Catch::Contains("r.json: expected results as written by Longhand: ") &&
            Catch::EndsWith("; repeat the command that wrote it, for a sweep longhand "
                            "ablate DIR"));
}

TEST_CASE("tables: marks of cells, in every format") {
  Table table = example();
  table.mark = "differs";
  table.marked = {{0, 1}, {2, 2}};
  CHECK(to_text(table) ==
        "variant    features  error (%)\n"
        "performer       16*      0.123\n"
        "a_b, \"c\"       1024        NaN\n"
        "none|λ            -  1.23e+07*\n"
        "* differs\n");
  CHECK_THAT(to_markdown(table), Catch::Contains("| performer | 16\\* | 0.123 |") &&
                                     Catch::EndsWith("|\n\n\\* differs\n"));
  CHECK_THAT(to_latex(table), Catch::Contains("performer & 16* & 0.123") &&
                                  Catch::Contains("\\multicolumn{3}{l}{* differs} \\\\\n\\end"));
  CHECK(to_csv(table) ==
        "variant,m,m_mark,error,error_mark\r\n"
        "performer,16,*,0.123456,\r\n"
        "\"a_b, \"\"c\"\"\",1024,,NaN,\r\n"
        "none|λ,,,12345678.5,*\r\n");
  Results results;
  results.tables = {table};
  CHECK(results_of_json(to_json(results), "r").tables[0].marked == table.marked);
  // Marks stay with their cells.
  const Table fewer = without_columns(table, [](size_t i) { return i == 1; });
  CHECK(fewer.marked == std::set<std::pair<size_t, size_t>>{{2, 1}});
  table.marked = {{3, 0}};
  CHECK_THROWS_WITH(table.check(), Catch::Contains("there is no cell 3, 0 to mark"));
}

TEST_CASE("tables: estimates with their intervals") {
  Table table{.name = "t"};
  for (const Estimate& each : {Estimate{0.5, 0.4, 0.6, 9}, Estimate{0.99, 0.9, 1, 9},
                               Estimate{2, std::nan(""), std::nan(""), 1}, Estimate{}})
    add_row(table, {{"empty", Cell{}}, {"x", each, "x"}});
  CHECK(to_text(without_empty_columns(with_intervals(table))) ==
        "x\n0.50 ±0.10\n0.990 (0.900 to 1.000)\n2\n-\n");
}

TEST_CASE("tables: a mean has the digits that its interval justifies") {
  const auto shown = [](double mean, double half) {
    Table table{.name = "t", .title = "", .columns = {{"x", ""}, {"low", ""}, {"high", ""}}};
    table.rows = {{mean, mean - half, mean + half}};
    return std::get<std::string>(with_intervals(table).rows[0][0]);
  };
  CHECK(shown(0.712345, 0.27326) == "0.71 ±0.27");
  CHECK(shown(0.943123, 0.000123) == "0.94312 ±0.00012");
  CHECK(shown(1234.56, 78.9) == "1235 ±79");
  CHECK(shown(123456.7, 7890.0) == "123500 ±7900");
  CHECK(shown(1.23456e-6, 1.5e-7) == "1.23e-06 ±1.5e-07");
  CHECK(shown(1.23456e9, 1.5e6) == "1.2346e+09 ±1500000");
  CHECK(shown(0, 0.05) == "0.000 ±0.050");
  CHECK(shown(1, 0) == "1 ±0");
}

TEST_CASE("tables: the chosen columns in their order, in every format; unknown ones are named") {
  Table table{.name = "t", .title = "Title"};
  add_row(table, {{"name", "a"}, {"x", Estimate{0.5, 0.4, 0.6, 3}, "x"}});
  const TableStyle style{.columns = {"x", "name"}};
  CHECK(to_format("text", table, table, style) == "x           name\n0.50 ±0.10  a\n");
  CHECK(to_format("csv", table, table, style) == "x,name\r\n0.5,a\r\n");
  CHECK_THAT(to_format("md", table, table, style), Catch::StartsWith("| x | name |\n"));
  CHECK_THAT(to_format("tex", table, table, style), Catch::Contains("0.50 $\\pm$0.10 & a"));
  CHECK_THROWS_WITH(to_format("text", table, table, {.columns = {"x", "y"}}),
                    "--columns y: the table \"t\" has no such column; expected some of name,x");
  CHECK_THROWS_WITH(to_format("csv", table, table, {.columns = {"y"}}),
                    Catch::Contains("expected some of name,x,x_low,x_high"));
}

TEST_CASE("tables: the variant is in every block of a wide table") {
  Table table{.name = "w", .title = "", .columns = {{"cell", ""}, {"variant", ""}}};
  table.rows = {{std::string(45, 'c'), std::string(20, 'v')}};
  for (int i = 0; i < 12; ++i) {
    table.columns.push_back({"column_" + std::to_string(i), ""});
    table.rows[0].push_back(int64_t{i});
  }
  std::istringstream lines(to_text(table));
  int64_t blocks = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find("column_") != std::string::npos || line.starts_with("variant")) {
      ++blocks;
      CHECK_THAT(line, Catch::Contains("variant"));
      std::getline(lines, line);
      CHECK_THAT(line, Catch::Contains(std::string(20, 'v')));
    }
  CHECK(blocks >= 2);
  const std::string text = to_text(table);
  CHECK(text.find(std::string(45, 'c')) == text.rfind(std::string(45, 'c')));
  CHECK(text.find(std::string(45, 'c')) != std::string::npos);
}

TEST_CASE("tables: the best is bold in Markdown and LaTeX, which has a caption and a label") {
  Table table = example();
  table.best = {{0, 2}};
  CHECK_THAT(to_markdown(table), Catch::Contains("| performer | 16 | **0.123** |") &&
                                     Catch::EndsWith("|\n\nBold: the best, and what seeds do not "
                                                     "tell apart from it.\n"));
  CHECK_THAT(to_latex(table), Catch::Contains("performer & 16 & \\textbf{0.123} \\\\"));
  CHECK(to_text(table) == to_text(example()));
  CHECK(to_csv(table) == to_csv(example()));
  CHECK_THAT(to_latex(table, "50 % of a_b.", "tab:x"),
             Catch::StartsWith("% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n"
                               "\\caption{50 \\% of a\\_b. Bold: the best") &&
                 Catch::Contains("}\n\\label{tab:x}\n\\begin{tabular}{lrr}\n") &&
                 Catch::EndsWith("\\end{tabular}\n\\end{table}\n"));
  table.rows[1] = {"a-1", int64_t{-3}, -0.5};
  CHECK_THAT(to_latex(table), Catch::Contains("a-1 & $-$3 & $-$0.5 "));
  Results results;
  results.tables = {table};
  CHECK(results_of_json(to_json(results), "r").tables[0].best == table.best);
  CHECK(with_columns(table, {"error", "variant"}).best ==
        std::set<std::pair<size_t, size_t>>{{0, 0}});
}

TEST_CASE("tables: LaTeX compiles in a document, whatever names of variants hold") {
  if (std::system("pdflatex --version >/dev/null 2>&1") != 0) {
    WARN("skipped: pdflatex is not installed");
    return;
  }
  Table table = example();
  table.rows.push_back({R"([a] * ~^\{}$&#_%<>"|' ± × ² ⁺ σ λ Σ κ √ … −)", Cell{}, 0.5});
  table.rows.push_back({"*", Cell{}, 0.5});
  table.marked = {{0, 1}};
  table.mark = "50 % more & less";
  table.best = {{0, 2}};
  const test::TemporaryDirectory folder;
  test::write_text(folder / "t.tex",
                   "\\documentclass{article}\n\\usepackage{booktabs}\n\\begin{document}\n" +
                       to_latex(table, table.title + " of 50 % ±1", "tab:t") +
                       "Table \\ref{tab:t}.\n\\end{document}\n");
  const std::string command = "cd '" + folder.path().string() +
                              "' && pdflatex -halt-on-error -interaction=nonstopmode t >out 2>&1";
  const int code = std::system(command.c_str());
  INFO(test::read_text(folder / "out"));
  CHECK(code == 0);
}

TEST_CASE("tables that are not rectangular, or charts of unknown columns, are refused") {
  Table short_row = example();
  short_row.rows[1].pop_back();
  CHECK_THROWS_WITH(short_row.check(), Catch::Contains("expected 3 cells in each row, got 2"));
  Table chart = example();
  chart.charts[0].y = "loss";
  CHECK_THROWS_WITH(chart.check(), Catch::Contains("there is no column \"loss\""));
  Table twice = example();
  twice.columns[1].name = "variant";
  CHECK_THROWS_WITH(twice.check(), Catch::Contains("two columns are named \"variant\""));
}

}  // namespace longhand::train

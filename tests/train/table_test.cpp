#include "longhand/train/report/table.h"

#include <cmath>
#include <limits>

#include "longhand/core/error.h"
#include "tests/support/catch.h"

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

}  // namespace

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
        "none|λ & - & 1.23e+07 \\\\\n"
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
                        .tables = {example()}};
  const std::string text = to_json(results);
  const Results read = results_of_json(text, "r.json");
  CHECK(to_json(read) == text);
  CHECK(std::isnan(std::get<double>(read.tables[0].rows[1][2])));
  CHECK(read.tables[0].rows[0][1] == Cell(int64_t{16}));
  CHECK_THROWS_AS(results_of_json("{}", "r.json"), DataError);
  CHECK_THROWS_WITH(results_of_json("[1", "r.json"),
                    Catch::Contains("r.json: expected results as written by Longhand"));
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

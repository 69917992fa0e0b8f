#include "longhand/train/lab/report/charts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "longhand/data/file.h"
#include "longhand/train/lab/report/page.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;

namespace {

ReportInputs committed(const std::string& file) {
  return read_inputs({std::string(LONGHAND_SOURCE) + "/examples/" + file});
}

const Figure& titled(const std::vector<Figure>& figures, const std::string& title) {
  const auto found = std::ranges::find(figures, title, &Figure::title);
  INFO(title);
  REQUIRE(found != figures.end());
  return *found;
}

size_t times_in(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

std::string svg(const Plot& plot, std::vector<std::string>* facts = nullptr) {
  return draw(plot, *svg_canvas({}), facts);
}

Plot line_of(std::vector<PlotPoint> points) {
  return {
      .title = "t", .x = "x", .y = "y", .series = {{.label = "a", .points = std::move(points)}}};
}

/// What attributes such as x="12.5" say.
std::vector<double> numbers_of(const std::string& text, const std::string& attribute) {
  std::vector<double> out;
  const std::string begin = " " + attribute + "=\"";
  for (size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    out.push_back(std::stod(text.substr(at + begin.size())));
  return out;
}

/// A sweep of `variants` at `tasks` with three seeds, as its results.
Results made_sweep(int64_t variants, int64_t tasks) {
  Table table{.name = "variants", .title = "Variants", .columns = {}}, cells = table;
  cells.name = "cells";
  table.columns = {{"variant", "variant"},
                   {"data_task", "data.task"},
                   {"attention_type", "attention.type"},
                   {"accuracy", "test accuracy"},
                   {"state_bytes", "state (bytes)"}};
  cells.columns = {{"cell", "cell"},
                   {"variant", "variant"},
                   {"data_task", "data.task"},
                   {"attention_type", "attention.type"},
                   {"seed", "seed"},
                   {"phase", "phase"},
                   {"status", "status"},
                   {"test_loss", "test loss"},
                   {"test_accuracy", "test accuracy"}};
  for (int64_t t = 0; t < tasks; ++t)
    for (int64_t v = 0; v < variants; ++v) {
      const std::string task = "task" + std::to_string(t), type = "v" + std::to_string(v);
      const double mean = 0.5 + 0.01 * static_cast<double>(v);
      table.rows.push_back({task + " " + type, task, type, mean, 1024 * (v + 1)});
      for (int64_t seed = 0; seed < 3; ++seed)
        cells.rows.push_back({task + type + std::to_string(seed), task + " " + type, task, type,
                              seed, std::string("final"), std::string("finished"), 1.0,
                              mean + 0.001 * static_cast<double>(seed - 1)});
    }
  table.charts = {
      {.title = "Test accuracy by variant", .x = "variant", .y = "accuracy", .bars = true},
      {.title = "Test accuracy against state",
       .x = "state_bytes",
       .y = "accuracy",
       .series = {"variant"}}};
  Results out;
  out.kind = "ablate";
  out.title = "A sweep";
  out.tables = {table, cells};
  return out;
}

}  // namespace

TEST_CASE("charts: a variant is one line through its widths, in one colour in every chart") {
  const ReportInputs inputs = committed("recall/results/results.json");
  const Figures figures = figures_of(inputs, compare(inputs));
  REQUIRE(figures.results.size() == 1);
  const std::vector<Figure>& drawn = figures.results[0][0];
  const Plot& state = titled(drawn, "Test accuracy against state (bytes)").plots[0];
  const std::vector<std::string> types = {"softmax", "window", "deltanet", "gated_deltanet", "gla",
                                          "mamba2",  "retnet", "linear",   "forgetting"};
  REQUIRE(state.series.size() == types.size());
  std::map<std::string, int64_t> hue_of;
  for (const Series& series : state.series) {
    CHECK(std::ranges::count(types, series.label) == 1);
    CHECK(series.points.size() == 3);
    CHECK(series.line);
    CHECK(series.variation == 0);
    hue_of[series.label] = series.hue;
  }
  std::set<int64_t> hues;
  for (const auto& [label, hue] : hue_of) hues.insert(hue);
  CHECK(hues.size() == types.size());
  for (const char* const title :
       {"Test accuracy against model.d_model", "Test accuracy against ms a step"})
    for (const Series& series : titled(drawn, title).plots[0].series)
      CHECK(series.hue == hue_of.at(series.label));
  for (const Series& series :
       titled(figures.leaderboard, "Test accuracy against parameters").plots[0].series)
    CHECK(series.hue == hue_of.at(series.label));
  // Bars of 27 variants have the colour of their type.
  const Plot& bars = titled(drawn, "Test accuracy by variant").plots[0];
  REQUIRE(bars.series.size() == 1);
  CHECK(bars.categories.size() == 27);
  CHECK(bars.series[0].points[0].hue == hue_of.at("softmax"));
}

TEST_CASE("charts: what a search tried is drawn, a panel for each width") {
  const ReportInputs inputs = committed("recall/results/results.json");
  const Figures figures = figures_of(inputs, compare(inputs));
  const std::vector<Figure>& drawn = figures.results[0][1];
  REQUIRE(drawn.size() == 3);
  for (const Figure& figure : drawn) {
    REQUIRE(figure.plots[0].series.size() == 9);
    for (const Series& series : figure.plots[0].series) {
      REQUIRE(series.points.size() == 2);
      CHECK(series.points[0].x == 0.003);
      CHECK(series.points[1].x == 0.01);
    }
  }
  CHECK_THAT(drawn[0].title,
             Contains("Validation accuracy against optimizer.lr, model.d_model 32"));
}

TEST_CASE("charts: several tasks are a heat map, and no chart has one point for each series") {
  const ReportInputs inputs = committed("skills/results/results.json");
  const Board board = compare(inputs);
  CHECK(board.tasks.size() == 6);
  CHECK_THAT(board.summary[0], Contains("6 tasks: "));
  CHECK(board.summary.size() == 7);
  const Figures figures = figures_of(inputs, board);
  REQUIRE(figures.matrix.size() == 1);
  const HeatMap& map = figures.matrix[0].plots[0].maps[0];
  CHECK(map.columns == board.tasks);
  CHECK(map.rows.size() == 16);
  CHECK(std::ranges::count_if(map.values, [](double v) { return std::isfinite(v); }) == 63);
  for (const Figure& figure : figures.results[0][0]) {
    CHECK_THAT(figure.title, !Contains("data.count") && !Contains("by variant"));
    CHECK(figure.plots[0].series.size() <= static_cast<size_t>(hues));
  }
}

TEST_CASE("charts: tasks have a metric of their own") {
  const TemporaryDirectory dir;
  const auto cell = [&](const std::string& name, const std::string& task, const std::string& type,
                        bool bytes) {
    std::filesystem::create_directories(dir / name);
    write_text(dir / (name + "/config.toml"),
               "[attention]\ntype = \"" + type + "\"\n[data]\ntask = \"" + task + "\"\n");
    write_text(
        dir / (name + "/metrics.jsonl"),
        std::string(
            R"({"step": 1, "split": "validation", "loss": 0.6931471805599453, "accuracy": 0.25)") +
            (bytes ? R"(, "bits_per_byte": 1.0)" : "") + "}\n");
  };
  for (const char* const type : {"softmax", "linear"}) {
    cell(std::string("a") + type, "copy", type, false);
    cell(std::string("b") + type, "text_lm", type, true);
  }
  const ReportInputs inputs = read_inputs({dir.path()});
  const Board board = compare(inputs);
  CHECK(board.leaderboard.columns[1].heading == "validation score");
  const size_t metric = board.matrix.column("metric"), score = board.matrix.column("score");
  std::map<std::string, std::string> scores;
  for (const auto& row : board.matrix.rows) scores[to_text(row[metric])] = to_text(row[score]);
  CHECK(scores == std::map<std::string, std::string>{{"validation accuracy", "0.25"},
                                                     {"validation bits per byte", "1"}});
  CHECK(figures_of(inputs, board).matrix.size() == 2);  // one metric each
}

TEST_CASE("charts: 36 variants at 7 tasks are panels of at most ten, in a page below 2 MB") {
  const TemporaryDirectory dir;
  write_text(dir / "results.json", to_json(made_sweep(36, 7)));
  const ReportInputs inputs = read_inputs({dir / "results.json"});
  CHECK(inputs.runs.size() == 36 * 7 * 3);  // its cells, for want of their directories
  const Figures figures = figures_of(inputs, compare(inputs));
  CHECK(figures.matrix[0].plots[0].maps[0].values.size() == 36 * 7);
  CHECK(figures.results[0][0].size() == 7 * 4);
  std::map<std::string, int64_t> hue_of;
  for (const Figure& figure : figures.results[0][0]) {
    std::set<int64_t> own;
    for (const Series& series : figure.plots[0].series) {
      CHECK(own.insert(series.hue % hues).second);
      CHECK(hue_of.try_emplace(series.label, series.hue).first->second == series.hue);
      CHECK(series.points[0].seeds.size() == 3);
    }
  }
  const std::string html = html_report(inputs);
  CHECK(html.size() < 2'000'000);
  CHECK(times_in(html, "<details class=\"panels\">") >= 2);
}

TEST_CASE("charts: damaged cells are not shown as variants") {
  const TemporaryDirectory dir;
  Results results = made_sweep(2, 1);
  Table& cells = results.tables[1];
  cells.rows.push_back(std::vector<Cell>(cells.columns.size()));
  cells.rows.back()[cells.column("status")] = std::string("damaged");
  write_text(dir / "results.json", to_json(results));
  const Board board = compare(read_inputs({dir / "results.json"}));
  CHECK(board.variants == std::vector<std::string>{"task0 v1", "task0 v0"});
  CHECK(board.summary.back() == "1 of 7 runs did not finish: 1 damaged.");
}

TEST_CASE("charts: an axis grows with an interval, or says that it leaves it") {
  const double none = std::nan("");
  std::vector<std::string> facts;
  svg(line_of({{1, 0.5, 0.3, 0.7}, {2, 0.6, 0.2, 1.0}}), &facts);
  CHECK(facts.empty());
  // The interval of two seeds, -3.9 to 5.1 around 0.6.
  Plot wide = line_of({{1, 0.5, 0.45, 0.55}, {2, 0.6, -3.865, 5.138}, {3, 0.62, 0.6, 0.64}});
  svg(wide, &facts);
  REQUIRE(facts.size() == 1);
  CHECK(facts[0] == "The interval of a leaves the axis: -3.87 to 5.14.");
  // An interval that ends below 0 leaves a logarithmic axis.
  Plot log = line_of({{1, 0.5, -0.1, 1.1}, {2, 5, 4, 6}});
  log.log_y = true;
  facts.clear();
  svg(log, &facts);
  CHECK(facts == std::vector<std::string>{"The interval of a leaves the axis: -0.1 to 1.1."});
  // A run that diverged does not flatten the others.
  Plot curves = line_of({{1, 3, none, none}, {2, 1, none, none}});
  curves.series.push_back(
      {.label = "b", .hue = 1, .points = {{1, 3, none, none}, {2, 1e9, none, none}}});
  curves.falls = true;
  facts.clear();
  const std::string picture = svg(curves, &facts);
  CHECK(facts == std::vector<std::string>{"b leaves the chart (up to 1e+09)."});
  CHECK_THAT(picture, Contains(">3</text>"));
}

TEST_CASE("charts: names are never cut") {
  Plot plot{.title = "t", .x = "x", .y = "y"};
  for (int64_t s = 0; s < 10; ++s)
    plot.series.push_back(
        {.label = "a variant with a name of many words, the " + std::to_string(s) + "th",
         .hue = s,
         .points = {{1, 1, std::nan(""), std::nan("")}, {2, 2, std::nan(""), std::nan("")}}});
  for (const double width : {120.0, 240.0, 440.0}) {
    const FigureFormat format{.width = width, .font_size = 8};
    const auto canvas = svg_canvas(format);
    const std::string picture = draw(plot, *canvas);
    const double height = numbers_of(picture, "height").at(0);
    for (const double y : numbers_of(picture, "y")) CHECK(y < height);
    const size_t keys = picture.find("class=\"key\"");
    for (size_t at = picture.find("<text", keys); at != std::string::npos;
         at = picture.find("<text", at + 1)) {
      const std::string element = picture.substr(at, picture.find("</text>", at) - at);
      CHECK(numbers_of(element, "x").at(0) +
                canvas->width_of(element.substr(element.find('>') + 1)) <=
            width);
    }
  }
}

TEST_CASE("charts: a figure is an SVG and a PDF") {
  const ReportInputs inputs = committed("recall/results/results.json");
  const std::vector<FigureFile> files =
      figure_files(inputs, {.width = 241, .font_size = 8, .serif = true});
  std::set<std::string> names;
  for (const FigureFile& file : files) {
    INFO(file.name);
    CHECK(names.insert(file.name).second);
    CHECK(file.svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    CHECK(file.svg.ends_with("</svg>\n"));
    for (const char* const tag : {"g", "svg", "text"})
      CHECK(times_in(file.svg, std::string("<") + tag + ">") +
                times_in(file.svg, std::string("<") + tag + " ") ==
            times_in(file.svg, std::string("</") + tag + ">"));
    CHECK_THAT(file.svg, Contains("width=\"241pt\"") && Contains("Times") && !Contains("nan"));
    CHECK(file.pdf.starts_with("%PDF-1.4"));
    CHECK_THAT(file.pdf, Contains("/BaseFont /Times-Roman"));
    // Each object is where the table says.
    const size_t table = std::stoul(file.pdf.substr(file.pdf.rfind("startxref\n") + 10));
    REQUIRE(file.pdf.substr(table, 5) == "xref\n");
    const size_t objects = times_in(file.pdf, " 0 obj\n");
    for (size_t i = 1; i <= objects; ++i) {
      const std::string object = std::to_string(i) + " 0 obj\n";
      CHECK(file.pdf.substr(
                std::stoul(file.pdf.substr(file.pdf.find(" f \n", table) + 4 + 20 * (i - 1), 10)),
                object.size()) == object);
    }
  }
  CHECK(names.contains("test-accuracy-against-state-bytes"));
}

TEST_CASE("charts: ticks") {
  CHECK(tick_text(0) == "0");
  CHECK(tick_text(0.25) == "0.25");
  CHECK(tick_text(12000) == "12k");
  CHECK(tick_text(2.5e6) == "2.5M");
  CHECK(tick_text(3e-5) == "3e-5");
  CHECK(tick_text(1e15) == "1e15");
}

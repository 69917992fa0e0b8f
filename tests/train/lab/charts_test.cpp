#include "longhand/train/lab/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
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

/// A sweep of `variants` at `tasks` with three seeds, and with several learning rates, as its results.
Results made_sweep(int64_t variants, int64_t tasks, int64_t rates = 1) {
  Table table{.name = "variants", .title = "Variants"}, cells = table;
  cells.name = "cells";
  table.columns = {{"variant", "variant"},
                   {"data_task", "data.task"},
                   {"attention_type", "attention.type"},
                   {"optimizer_lr", "optimizer.lr"},
                   {"accuracy", "test accuracy"},
                   {"state_bytes", "state (bytes)"}};
  cells.columns = {{"cell", "cell"},
                   {"variant", "variant"},
                   {"data_task", "data.task"},
                   {"attention_type", "attention.type"},
                   {"optimizer_lr", "optimizer.lr"},
                   {"seed", "seed"},
                   {"phase", "phase"},
                   {"status", "status"},
                   {"test_loss", "test loss"},
                   {"test_accuracy", "test accuracy"}};
  for (int64_t i = 0; i < tasks * variants * rates; ++i) {
    const int64_t v = i / rates % variants, rate = i % rates;
    const std::string task = "task" + std::to_string(i / rates / variants),
                      type = "v" + std::to_string(v);
    const double mean = 0.5 + 0.01 * static_cast<double>(v), lr = 1e-4 * std::pow(3, rate);
    const std::string name =
        task + " " + type + (rates > 1 ? " lr=" + std::to_string(lr) : std::string());
    table.rows.push_back({name, task, type, lr, mean, 1024 * (v + 1)});
    for (int64_t seed = 0; seed < 3; ++seed)
      cells.rows.push_back(
          {fmt::format("{:016x}", 0x9e3779b97f4a7c15u * static_cast<uint64_t>(3 * i + seed)), name,
           task, type, lr, seed, std::string("final"), std::string("finished"), 1.0,
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

using Triple = std::array<double, 3>;
using Matrix = std::array<Triple, 3>;

Triple times(const Matrix& m, const Triple& x) {
  Triple out{};
  for (size_t i = 0; i < 3; ++i)
    for (size_t k = 0; k < 3; ++k) out[i] += m[i][k] * x[k];
  return out;
}

/// "#rrggbb" as light of the three colours.
Triple linear(const std::string& hex) {
  Triple out{};
  for (size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(hex.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    out[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return out;
}
const Matrix xyz_of = {{{0.4124564, 0.3575761, 0.1804375},
                        {0.2126729, 0.7151522, 0.0721750},
                        {0.0193339, 0.1191920, 0.9503041}}};
double luminance(const std::string& hex) { return times(xyz_of, linear(hex))[1]; }
/// Of WCAG.
double contrast(const std::string& a, const std::string& b) {
  const auto [least, most] = std::minmax({luminance(a), luminance(b)});
  return (most + 0.05) / (least + 0.05);
}

/// CIE L*a*b* of light, as seen with or without all kinds of cones.
Triple lab(const Matrix& seen, Triple light) {
  light = times(seen, light);
  for (double& each : light) each = std::clamp(each, 0.0, 1.0);
  Triple f = times(xyz_of, light);
  const Triple white = times(xyz_of, {1, 1, 1});
  for (size_t i = 0; i < 3; ++i) {
    const double t = f[i] / white[i];
    f[i] = t > 216.0 / 24389 ? std::cbrt(t) : (24389.0 / 27 * t + 16) / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

/// CIEDE2000 (Sharma, Wu and Dalal 2005).
double difference(Triple one, Triple two) {
  constexpr double degree = std::numbers::pi / 180;
  const auto seventh = [](double c) {
    return std::sqrt(std::pow(c, 7) / (std::pow(c, 7) + std::pow(25.0, 7)));
  };
  const double g =
      0.5 * (1 - seventh((std::hypot(one[1], one[2]) + std::hypot(two[1], two[2])) / 2));
  std::array<double, 2> c{}, h{};
  for (size_t i = 0; i < 2; ++i) {
    const Triple& each = i == 0 ? one : two;
    c[i] = std::hypot((1 + g) * each[1], each[2]);
    h[i] = std::fmod(std::atan2(each[2], (1 + g) * each[1]) / degree + 360, 360);
  }
  double turn = h[1] - h[0];
  if (turn > 180) turn -= 360;
  if (turn < -180) turn += 360;
  const double light = (one[0] + two[0]) / 2, chroma = (c[0] + c[1]) / 2, hue = h[0] + turn / 2;
  const double t = 1 - 0.17 * std::cos((hue - 30) * degree) + 0.24 * std::cos(2 * hue * degree) +
                   0.32 * std::cos((3 * hue + 6) * degree) -
                   0.2 * std::cos((4 * hue - 63) * degree);
  const double dl = (two[0] - one[0]) / (1 + 0.015 * (light - 50) * (light - 50) /
                                                 std::sqrt(20 + (light - 50) * (light - 50))),
               dc = (c[1] - c[0]) / (1 + 0.045 * chroma),
               dh = 2 * std::sqrt(c[0] * c[1]) * std::sin(turn / 2 * degree) /
                    (1 + 0.015 * chroma * t),
               from_blue = (std::fmod(hue + 360, 360) - 275) / 25;
  const double rotated =
      -2 * seventh(chroma) * std::sin(60 * degree * std::exp(-from_blue * from_blue));
  return std::sqrt(dl * dl + dc * dc + dh * dh + rotated * dc * dh);
}

}  // namespace

TEST_CASE("charts: ten colours are told apart, also without a kind of cones, and on a dark page") {
  // One of the pairs of Sharma, Wu and Dalal.
  REQUIRE(difference({50, 2.6772, -79.7751}, {50, 0, -82.7485}) == Approx(2.0425).margin(1e-4));
  // Machado, Oliveira and Fernandes 2009: none, protanopia, deuteranopia, tritanopia.
  const std::array<std::pair<Matrix, double>, 4> sights = {
      {{{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}, 21},
       {{{{0.152286, 1.052583, -0.204868},
          {0.114503, 0.786281, 0.099216},
          {-0.003882, -0.048116, 1.051998}}},
        11},
       {{{{0.367322, 0.860646, -0.227968},
          {0.280085, 0.672501, 0.047413},
          {-0.011820, 0.042940, 0.968881}}},
        11},
       {{{{1.255528, -0.076749, -0.178779},
          {-0.078411, 0.930809, 0.147602},
          {0.004733, 0.691367, 0.303900}}},
        11}}};
  const std::string style = style_of_charts();
  for (const bool dark : {false, true}) {
    std::vector<std::string> colours;
    for (int64_t h = 0; h < hues; ++h) {
      const std::string name = "--h" + std::to_string(h) + ":";
      const size_t at = dark ? style.rfind(name) : style.find(name);
      colours.push_back(style.substr(at + name.size(), 7));
    }
    for (size_t a = 0; a < colours.size(); ++a) {
      CAPTURE(dark, colours[a]);
      CHECK(contrast(colours[a], dark ? "#171b21" : "#ffffff") >= 3);
      for (size_t b = 0; b < a; ++b)
        for (const auto& [seen, least] : sights) {
          CAPTURE(colours[b], least);
          CHECK(difference(lab(seen, linear(colours[a])), lab(seen, linear(colours[b]))) >= least);
        }
    }
  }
}

TEST_CASE("charts: ten series have ten markers, too") {
  Plot plot{.title = "t", .x = "x", .y = "y"};
  for (int64_t s = 0; s < hues; ++s)
    plot.series.push_back(
        {.label = "v", .hue = s, .points = {{1, 1, std::nan(""), std::nan("")}}, .line = false});
  // In the legend, each as its corners seen from the first, and whether it is filled.
  const std::string picture = svg(plot);
  std::set<std::pair<std::vector<int64_t>, bool>> shapes;
  for (size_t at = picture.find("class=\"key\""); at != std::string::npos;
       at = picture.find("class=\"key\"", at + 1)) {
    const size_t begin = picture.find("<path d=\"M", at) + 10, end = picture.find("/>", begin);
    std::vector<double> places;
    for (size_t i = begin; picture[i] != 'z';) {
      size_t read = 0;
      places.push_back(std::stod(picture.substr(i), &read));
      i += read + (picture[i + read] != 'z');
    }
    std::vector<int64_t> corners;
    for (size_t i = 0; i < places.size(); ++i)
      corners.push_back(std::llround(2 * (places[i] - places[i % 2])));
    const bool hollow = picture.substr(begin, end - begin).find("\"#ffffff\"") != std::string::npos;
    shapes.emplace(std::move(corners), hollow);
  }
  CHECK(shapes.size() == static_cast<size_t>(hues));
}

TEST_CASE("charts: colours do not depend on who is best") {
  const TemporaryDirectory dir;
  const auto hues_in = [&](const std::string& name, bool reversed) {
    Results results = made_sweep(12, 1);
    for (Table& table : results.tables)
      for (auto& row : table.rows)
        for (Cell& cell : row)
          if (auto* const text = std::get_if<std::string>(&cell)) {
            if (*text == "v3") *text = "softmax";
            if (*text == "task0 v3") *text = "task0 softmax";
          } else if (auto* const value = std::get_if<double>(&cell); value && reversed) {
            *value = 1 - *value;
          }
    write_text(dir / name, to_json(results));
    const ReportInputs inputs = read_inputs({dir / name});
    std::map<std::string, int64_t> out;
    const Figures figures = figures_of(inputs, compare(inputs));
    for (const Figure& figure : figures.results[0][0])
      for (const Series& series : figure.plots[0].series) out[series.label] = series.hue;
    return out;
  };
  const auto hue_of = hues_in("a.json", false);
  CHECK(hue_of.size() >= 12);
  CHECK(hue_of.at("softmax") == 0);
  CHECK(hue_of == hues_in("b.json", true));
}

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

TEST_CASE("charts: a heat map tells what failed from what was never run") {
  const TemporaryDirectory dir;
  Results results = made_sweep(2, 2);
  Table& cells = results.tables[1];
  std::erase_if(cells.rows, [&](const auto& row) {
    return row[cells.column("variant")] == Cell(std::string("task0 v0"));
  });
  for (auto& row : cells.rows)
    if (row[cells.column("variant")] == Cell(std::string("task1 v1"))) {
      row[cells.column("status")] = std::string("failed");
      row[cells.column("test_accuracy")] = row[cells.column("test_loss")] = Cell{};
    }
  write_text(dir / "results.json", to_json(results));
  const ReportInputs inputs = read_inputs({dir / "results.json"});
  const Figures figures = figures_of(inputs, compare(inputs));
  REQUIRE(figures.matrix.size() == 1);
  const std::string picture = svg(figures.matrix[0].plots[0]);
  CHECK_THAT(picture, Contains("v1, task1: – no score of 0 seeds</title>"));
  CHECK(times_in(picture, ">–</text>") == 1);
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
  CHECK(times_in(html, "<details class=\"panels\" data-folded=") >= 2);
}

TEST_CASE(
    "charts: 36 variants at 7 tasks with 5 learning rates and 3 seeds are a page below 2 MB") {
  const TemporaryDirectory dir;
  write_text(dir / "results.json", to_json(made_sweep(36, 7, 5)));
  const ReportInputs inputs = read_inputs({dir / "results.json"});
  CHECK(inputs.runs.size() == 3780);
  const std::string html = html_report(inputs);
  CHECK(html.size() < 2'000'000);
  // What is open at first: the heat map of tasks and variants.
  CHECK(times_in(html, " data-print open><summary>Test accuracy by task and variant") == 1);
}

TEST_CASE("charts: an option that the data decide does not tell variants apart") {
  const TemporaryDirectory dir;
  const auto run = [&](const std::string& task, const std::string& type, double accuracy,
                       const std::string& more = "") {
    const std::string name = task + type;
    std::filesystem::create_directories(dir / name);
    write_text(dir / (name + "/config.toml"), "[attention]\ntype = \"" + type + "\"\n" + more +
                                                  "[data]\ntask = \"" + task + "\"\n" +
                                                  (task == "copy" ? "count = 4\n" : "count = 5\n"));
    write_text(dir / (name + "/metrics.jsonl"),
               R"({"step": 1, "split": "validation", "loss": 0.5, "accuracy": )" +
                   std::to_string(accuracy) + "}\n");
  };
  run("copy", "softmax", 0.9);
  run("parity", "softmax", 0.1);
  run("copy", "log_linear", 0.8, "levels = 7\n");
  run("parity", "log_linear", 0.7, "levels = 8\n");
  const ReportInputs inputs = read_inputs({dir.path()});
  const Board board = compare(inputs);
  CHECK_FALSE(board.leaderboard.find("data_count"));  // nor do options that the task decides
  const Figures figures = figures_of(inputs, board);
  REQUIRE(figures.matrix.size() == 1);
  const HeatMap& map = figures.matrix[0].plots[0].maps[0];
  CHECK(map.rows == std::vector<std::string>{"log_linear", "softmax"});  // by their means
  CHECK(map.values == std::vector<double>{0.8, 0.7, 0.9, 0.1});
  CHECK(figures.leaderboard.empty());
}

TEST_CASE("charts: the order of a sweep is kept, and what a search chose tells no variants apart") {
  const TemporaryDirectory dir;
  int64_t made = 0;
  const auto cell = [&](const std::string& task, const std::string& type, double lr, bool last) {
    const std::string hash = std::to_string(9 - made++), folder = "cells/" + hash + "/";
    std::filesystem::create_directories(dir / folder);
    write_text(
        dir / (folder + "config.toml"),
        fmt::format("[attention]\ntype = \"{}\"\n[data]\ntask = \"{}\"\n[optimizer]\nlr = {}\n",
                    type, task, lr));
    write_text(dir / (folder + "metrics.jsonl"),
               R"({"step": 1, "split": "validation", "loss": 0.5, "accuracy": 0.5})");
    write_text(
        dir / (folder + "cell.json"),
        fmt::format(R"({{"variant": "{} {}", "seed": 0, "phase": "{}", "status": "trained"}})",
                    task, type, last ? "final" : "search"));
  };
  Results results = made_sweep(1, 1);
  results.tables[0].rows.clear();
  for (const char* const task : {"parity", "copy"})
    for (const char* const type : {"softmax", "linear"}) {
      const bool first = type == std::string("softmax");
      cell(task, type, first ? 0.2 : 0.1, false);
      cell(task, type, first ? 0.1 : 0.2, true);
      results.tables[0].rows.push_back({std::string(task) + " " + type, std::string(task),
                                        std::string(type), Cell{}, 0.5, Cell{}});
    }
  write_text(dir / "results.json", to_json(results));
  const ReportInputs inputs = read_inputs({dir.path()});
  const Board board = compare(inputs);
  CHECK(board.tasks == std::vector<std::string>{"parity", "copy"});
  const Table& table = board.leaderboard;
  CHECK(table.columns[table.column("optimizer_lr")].heading == "optimizer.lr, chosen");
  for (const Chart& chart : table.charts) CHECK(chart.x != "optimizer_lr");
}

TEST_CASE("charts: the steps of cells are those that the tables of a sweep list") {
  const Table table = compare(committed("atlas/results/tracking/results.json")).leaderboard;
  CHECK(table.rows.at(0)[table.column("variant")] ==
        Cell{std::string("parity deltaproduct negative=true")});
  CHECK(table.rows[0][table.column("steps")] == Cell{int64_t{100}});
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

TEST_CASE(
    "charts: cells that have not begun are counted, but trials that no search needs are not") {
  const TemporaryDirectory dir;
  Results results = made_sweep(2, 1);
  Table& cells = results.tables[1];
  for (const char* const phase : {"final", "search"}) {
    cells.rows.push_back(cells.rows.back());
    cells.rows.back()[cells.column("phase")] = std::string(phase);
    cells.rows.back()[cells.column("status")] = std::string("waiting");
  }
  write_text(dir / "results.json", to_json(results));
  CHECK(compare(read_inputs({dir / "results.json"})).summary.back() ==
        "1 of 7 runs did not finish: 1 waiting.");
  // The directory of a sweep lists those that have begun.
  write_text(dir / "sweep.toml", "");
  std::filesystem::create_directory(dir / "cells");
  CHECK(compare(read_inputs({dir.path()})).summary.back() ==
        "1 of 1 runs did not finish: 1 waiting.");
}

TEST_CASE("charts: a sweep of rates is a heat map of variants, each with the rate of validation") {
  const TemporaryDirectory dir;
  Results results = made_sweep(4, 3, 5);
  Table& cells = results.tables[1];
  cells.columns.push_back({"validation_accuracy", "validation accuracy"});
  for (size_t r = 0; r < cells.rows.size(); ++r)  // best with the third rate
    cells.rows[r].emplace_back(r / 3 % 5 == 2 ? 0.9 : 0.1);
  write_text(dir / "results.json", to_json(results));
  const Board board = compare(read_inputs({dir / "results.json"}));
  REQUIRE(board.matrix.rows.size() == 4 * 3);
  CHECK(board.matrix.rows[0][board.matrix.column("variant")] == Cell{std::string("v3")});
  CHECK(std::get<double>(board.matrix.rows[0][board.matrix.column("chosen")]) == Approx(9e-4));
  CHECK(board.leaderboard.rows.size() == 4 * 3 * 5);
}

TEST_CASE("charts: losses of several tasks have colours of their own") {
  Plot plot{.y = "test loss", .kind = Plot::Kind::heat, .falls = true};
  plot.maps.push_back({.label = "",
                       .columns = {"copy", "parity"},
                       .rows = {"a", "b"},
                       .width = 2,
                       .height = 2,
                       .values = {2.1, 0.67, 2.2, 0.69},
                       .texts = {"2.1", "0.67", "2.2", "0.69"}});
  const std::string drawn = svg(plot);
  CHECK(times_in(drawn, "fill=\"#fde725\"") == 2);  // the best of each
  CHECK(times_in(drawn, "fill=\"#440154\"") == 2);  // the worst
  CHECK_THAT(drawn, Contains("worst test loss of each task"));
}

TEST_CASE("charts: names of many columns do not lie over each other") {
  const auto drawn = [](int64_t columns) {
    const auto count = static_cast<size_t>(columns);
    Plot plot{.y = "test accuracy", .kind = Plot::Kind::heat};
    plot.maps.push_back({.label = "",
                         .columns = std::vector<std::string>(count, "memorization vocabulary=512"),
                         .rows = {"a"},
                         .width = columns,
                         .height = 1,
                         .values = std::vector<double>(count, 0.5),
                         .texts = std::vector<std::string>(count, "0.5")});
    return svg(plot);
  };
  CHECK(times_in(drawn(2), ">memorization</text>") == 2);  // there is room for lines
  CHECK(times_in(drawn(30), ">memorization vocabulary=512</text>") == 30);
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
  // An accuracy that is far above most of the others is what a reader looks for.
  Plot accuracies = line_of({{1, 0.9, none, none}, {2, 0.95, none, none}});
  for (int64_t s = 1; s < 4; ++s)
    accuracies.series.push_back({.label = "at chance",
                                 .hue = s,
                                 .points = {{1, 0.001, none, none}, {2, 0.002, none, none}}});
  accuracies.unit_y = true;
  facts.clear();
  svg(accuracies, &facts);
  CHECK(facts.empty());
}

TEST_CASE("charts: names are never cut") {
  Plot plot{.title = "t", .x = "x", .y = "y"};
  for (int64_t s = 0; s < 10; ++s)
    plot.series.push_back(
        {.label = "a variant with a name of many words, the " + std::to_string(s) + "th",
         .hue = s,
         .points = {{1, 1, std::nan(""), std::nan("")}, {2, 2, std::nan(""), std::nan("")}}});
  plot.series[3].label = "of one long word: " + std::string(300, 'w');
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

#include "longhand/train/lab/report/page.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/charts.h"
#include "longhand/train/run/run_record.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"

using namespace longhand;
using namespace longhand::train;
using namespace longhand::test;
using Catch::Contains;
using Json = nlohmann::json;

namespace {

namespace fs = std::filesystem;

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

/// What a run in a directory is made of.
struct Fake {
  std::string attention = "softmax";
  int64_t seed = 0;
  double accuracy = 0.5;  // at the end
  std::string status = "finished";
  std::string more{};  // of the configuration
  int64_t records = 5;
  std::string task = "mqar";
};

Record record(int64_t step, const std::string& split, double accuracy) {
  Record r;
  r.step = step;
  r.split = split;
  r.loss = -std::log(std::max(accuracy, 1e-3));
  r.accuracy = accuracy;
  r.tokens_per_second = 1000;
  r.peak_memory = 1 << 20;
  r.seconds = 0.5 * static_cast<double>(step);
  return r;
}

void make_run(const fs::path& path, const Fake& fake) {
  RunRecord run = RunRecord::create(path);
  run.write_config("[attention]\ntype = \"" + fake.attention + "\"\n[data]\ntask = \"" + fake.task +
                   "\"\n" + "[train]\nseed = " + std::to_string(fake.seed) + "\n" + fake.more);
  run.keep();
  for (int64_t i = 1; i <= fake.records; ++i) {
    const double accuracy =
        fake.accuracy * static_cast<double>(i) / static_cast<double>(fake.records);
    run.append(record(10 * i, "train", accuracy));
    Record validation = record(10 * i, "validation", accuracy);
    validation.best = true;
    run.append(validation);
  }
  if (fake.status == "running") return;
  Summary summary;
  summary.status = fake.status;
  summary.task = fake.task;
  summary.attention = fake.attention;
  summary.step = summary.steps = 10 * fake.records;
  summary.parameters = 12345;
  summary.state_bytes = fake.attention == "softmax" ? 4096 : 512;
  summary.seed = static_cast<uint64_t>(fake.seed);
  summary.seconds = 5;
  summary.version = "0.1.0";
  summary.machine = "a machine";
  summary.data = {{"train", "abcdef"}};
  run.write_summary(summary);
}

/// The block of data of a page.
Json data_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = html.find(begin) + begin.size();
  return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

double number_at(const Table& table, size_t row, const std::string& column) {
  const Cell& cell = table.rows.at(row)[table.column(column)];
  return std::holds_alternative<double>(cell) ? std::get<double>(cell)
                                              : static_cast<double>(std::get<int64_t>(cell));
}

Results some_results() {
  Table table{.name = "error",
              .title = "Errors </script><img alt=x>",
              .columns = {{"variant", ""}, {"n", "tokens"}, {"seconds", "time (s)"}},
              .charts = {{.title = "Time against tokens",
                          .x = "n",
                          .y = "seconds",
                          .series = {"variant"},
                          .log_x = true,
                          .log_y = true}}};
  for (const int64_t n : {100, 200, 400, 800}) {
    const auto x = static_cast<double>(n);
    table.rows.push_back({std::string("softmax"), n, 1e-4 * x * x});
    table.rows.push_back({std::string("linear"), n, 0.03 * x});
  }
  Results results;
  results.kind = "analyse efficiency";
  results.title = "Efficiency";
  results.tables.push_back(table);
  return results;
}

}  // namespace

TEST_CASE("report: groups runs by variant, with intervals over seeds and a paired comparison") {
  const TemporaryDirectory dir;
  const double softmax[] = {0.90, 0.92, 0.94}, linear[] = {0.80, 0.81, 0.85};
  for (int64_t seed = 0; seed < 3; ++seed) {
    const std::string n = std::to_string(seed);
    make_run(dir / ("softmax" + n), {.seed = seed, .accuracy = softmax[seed]});
    make_run(dir / ("linear" + n), {.attention = "linear", .seed = seed, .accuracy = linear[seed]});
  }
  const Board board = compare(read_inputs({dir.path()}));  // a folder of runs
  REQUIRE(board.variants == std::vector<std::string>{"softmax", "linear"});
  const Table& table = board.leaderboard;
  CHECK(number_at(table, 0, "score") == Approx(0.92));
  // 0.92 +- t s / sqrt(3), t = 4.3027 for 2 degrees of freedom, s = 0.02
  CHECK(number_at(table, 0, "low") == Approx(0.92 - 4.30265 * 0.02 / std::sqrt(3)).epsilon(1e-5));
  CHECK(number_at(table, 0, "high") == Approx(0.92 + 4.30265 * 0.02 / std::sqrt(3)).epsilon(1e-5));
  CHECK(number_at(table, 0, "seeds") == 3);
  CHECK(number_at(table, 1, "state_bytes") == 512);
  CHECK(number_at(table, 0, "seconds") == 25);
  // Differences 0.10, 0.11, 0.09: 0.1 +- 4.3027 0.01 / sqrt(3)
  REQUIRE(board.summary.size() == 1);
  CHECK_THAT(board.summary[0],
             Contains("softmax is the best of 2 variants, with a validation accuracy of 0.92 (95 % "
                      "interval 0.87 to 0.97, 3 seeds), 0.1 above linear") &&
                 Contains("0.0752 to 0.125") && Contains("excludes 0"));
  CHECK(table.best == std::set{std::pair(size_t{0}, table.column("score"))});
  CHECK(board.shared.at("data.task") == "\"mqar\"");
  CHECK(board.own[1].at("attention.type") == "\"linear\"");
  const ReportInputs inputs = read_inputs({dir.path()});
  const Figures figures = figures_of(inputs, board);
  REQUIRE(figures.leaderboard.size() == 1);  // against the state; all else is equal
  CHECK(figures.leaderboard[0].title == "Validation accuracy against state (bytes)");

  // The page has all of them.
  const Json shown = data_of(html_report(read_inputs({dir.path()})))["tables"][0];
  CHECK(shown["name"] == "leaderboard");
  for (const char* const name : {"score", "low", "high"}) {
    const Json& values = shown["columns"][table.column(name)]["values"];
    for (const size_t row : {0, 1})
      CHECK(values[row].get<double>() == Approx(number_at(table, row, name)).epsilon(1e-5));
  }
}

TEST_CASE(
    "report: intervals of accuracies end at 1, and there is none where some seeds solved it") {
  const TemporaryDirectory dir;
  const double softmax[] = {0.97, 0.99, 1}, linear[] = {0.1, 0.99, 0.98};
  for (int64_t seed = 0; seed < 3; ++seed) {
    const std::string n = std::to_string(seed);
    make_run(dir / ("softmax" + n), {.seed = seed, .accuracy = softmax[seed]});
    make_run(dir / ("linear" + n), {.attention = "linear", .seed = seed, .accuracy = linear[seed]});
  }
  const Board board = compare(read_inputs({dir.path()}));
  CHECK(number_at(board.leaderboard, 0, "score") == Approx(2.96 / 3));
  CHECK(number_at(board.leaderboard, 0, "high") == 1);
  CHECK(number_at(board.leaderboard, 0, "low") < 0.96);
  CHECK(number_at(board.leaderboard, 1, "score") == Approx(0.69));
  const auto low = board.leaderboard.rows[1][board.leaderboard.column("low")];
  CHECK_FALSE(std::holds_alternative<double>(low));
  CHECK(board.leaderboard.best.empty());  // not told apart
  CHECK(without_interval({0.1, 0.99, 0.98}) == "2 of 3 seeds solved it, 95 %: 0.21 to 0.94");
  CHECK(without_interval({0.1, 0.6, 0.61}) ==
        "2 of 3 seeds reached at least 0.60, the others at most 0.10");
  CHECK(without_interval({1, 1, 1}) == "3 seeds, all equal");
}

TEST_CASE("report: options that differ are columns, and tell equal variants apart") {
  const TemporaryDirectory dir;
  make_run(dir / "a", {.attention = "performer", .more = "[model]\nd_model = 32\n"});
  make_run(dir / "b", {.attention = "performer", .more = "[model]\nd_model = 64\n"});
  make_run(dir / "c", {.attention = "linear", .more = "[model]\nd_model = 32\n"});
  make_run(dir / "d", {.attention = "linear", .more = "[model]\nd_model = 64\n"});
  const Board board = compare(read_inputs({dir / "a", dir / "b", dir / "c", dir / "d"}));
  CHECK(board.variants.size() == 4);
  CHECK(std::count(board.variants.begin(), board.variants.end(), "performer d_model=64") == 1);
  CHECK(number_at(board.leaderboard, 0, "model_d_model") == 32);
  CHECK(board.leaderboard.charts.at(0).x == "model_d_model");
  CHECK(board.leaderboard.charts[0].series == std::vector<std::string>{"attention_type"});
}

TEST_CASE("report: runs that diverged do not count, and the last line says how many") {
  const TemporaryDirectory dir;
  make_run(dir / "a", {.seed = 0, .accuracy = 0.6});
  make_run(dir / "b", {.seed = 1, .accuracy = 0.0, .status = "diverged"});
  make_run(dir / "c", {.attention = "linear", .accuracy = 0.5, .status = "running"});
  std::ofstream(dir / "c/metrics.jsonl", std::ios::app) << "{\"step\": 4, \"spl";
  std::ofstream(dir / "b/metrics.jsonl", std::ios::app)
      << "{\"step\": 60, \"split\": \"train\", \"loss\": \"Infinity\", \"accuracy\": 0}\n";
  const ReportInputs inputs = read_inputs({dir.path()});
  const Board board = compare(inputs);
  CHECK(number_at(board.leaderboard, 0, "score") == Approx(0.6));
  CHECK(number_at(board.leaderboard, 0, "seeds") == 1);
  CHECK_THAT(board.summary[0], Contains("chance is not excluded"));
  CHECK(board.summary.back() == "2 of 3 runs did not finish: 1 diverged, 1 running.");
  // It has a curve of its own, as far as that is finite.
  CHECK_THAT(html_report(inputs), Contains("softmax, seed 1: diverged"));
}

TEST_CASE("report: a sweep in progress") {
  const TemporaryDirectory dir;
  const auto cell = [&](const std::string& hash, const Json& json) {
    fs::create_directories(dir / "sweep/cells" / hash);
    write_text(dir / "sweep/cells" / hash / "cell.json", json.dump());
  };
  make_run(dir / "sweep/cells/a", {.accuracy = 0.7});
  cell("a", {{"variant", "softmax"}, {"seed", 0}, {"phase", "final"}, {"status", "finished"}});
  write_text(dir / "sweep/cells/a/test.json", R"({"loss": 0.5, "accuracy": 0.65, "step": 50})");
  cell("b", {{"variant", "linear"},
             {"seed", 0},
             {"phase", "final"},
             {"status", "crashed"},
             {"reason", "signal 11 <b>"},
             {"values", {{"attention.type", "linear"}}}});
  make_run(dir / "sweep/cells/c", {.attention = "linear", .accuracy = 0.99});
  cell("c", {{"variant", "linear"}, {"seed", 1}, {"phase", "search"}, {"status", "trained"}});
  Results results = some_results();
  results.kind = "ablate";
  write_text(dir / "sweep/results.json", to_json(results));

  const ReportInputs inputs = read_inputs({dir / "sweep"});
  CHECK(inputs.results.size() == 1);
  const Board board = compare(inputs);
  CHECK(board.variants == std::vector<std::string>{"softmax", "linear"});
  CHECK(board.leaderboard.columns[1].heading == "test accuracy");
  CHECK(number_at(board.leaderboard, 0, "score") == Approx(0.65));  // of the test split
  CHECK(!board.variant_of[2]);  // trials of a search are not compared
  CHECK(board.runs.rows.size() == 3);
  const std::string html = html_report(inputs);
  CHECK(count(html, "crashed: signal 11 \\u003cb>") == 1);
  CHECK(count(html, "<b>") == 0);
}

TEST_CASE("report: sweeps of several tasks share the names of variants") {
  const TemporaryDirectory dir;
  const auto cell = [&](const std::string& path, const Fake& fake) {
    make_run(dir / path, fake);
    write_text(dir / path / "cell.json",
               Json({{"variant", fake.attention}, {"seed", 0}, {"phase", "final"}}).dump());
  };
  const auto names = [&] {
    const Board board = compare(read_inputs({dir.path()}));
    std::set<std::string> out;
    for (size_t v = 0; v < board.names.size(); ++v)
      out.insert(board.tasks[board.task_of[v]] + ": " + board.names[v]);
    return out;
  };
  // The width of a sweep is that of all its variants; heads distinguish two of them.
  const std::string narrow = "[model]\nd_model = 16\n";
  cell("a/cells/1", {.more = "[model]\nd_model = 32\n"});
  cell("a/cells/2", {.attention = "linear", .more = "[model]\nd_model = 32\nheads = 1\n"});
  cell("a/cells/3", {.attention = "linear", .more = "[model]\nd_model = 32\nheads = 4\n"});
  cell("deep/b/cells/1", {.more = narrow, .task = "copy"});
  cell("deep/b/cells/2", {.attention = "linear", .more = narrow, .task = "copy"});
  CHECK(names() == std::set<std::string>{"mqar: softmax", "mqar: linear heads=1",
                                         "mqar: linear heads=4", "copy: softmax", "copy: linear"});
  // What distinguishes the same variant at the same task is named.
  cell("c/cells/1", {.more = "[model]\nd_model = 64\n", .task = "copy"});
  CHECK(names() == std::set<std::string>{"mqar: softmax", "mqar: linear heads=1",
                                         "mqar: linear heads=4", "copy: softmax d_model=16",
                                         "copy: softmax d_model=64", "copy: linear"});
  // Two sweeps that differ in nothing have their names.
  cell("e/cells/1", {.more = "[model]\nd_model = 64\n", .task = "copy"});
  CHECK(names() == std::set<std::string>{
                       "mqar: softmax", "mqar: linear heads=1", "mqar: linear heads=4",
                       "copy: softmax d_model=16 sweep=deep/b", "copy: softmax d_model=64 sweep=c",
                       "copy: softmax d_model=64 sweep=e", "copy: linear"});
  // The results of a sweep without its cells name its task; those of earlier versions have a title.
  Results results = some_results();
  results.kind = "ablate";
  results.title = "Text";
  results.tables = {{.name = "variants",
                     .columns = {{"variant", ""}, {"accuracy", ""}},
                     .rows = {{"softmax", 0.5}}},
                    {.name = "cells",
                     .columns = {{"cell", ""},
                                 {"variant", ""},
                                 {"attention_type", "attention.type"},
                                 {"seed", ""},
                                 {"phase", ""},
                                 {"status", ""},
                                 {"test_accuracy", ""}},
                     .rows = {{"x", "softmax", "softmax", int64_t{0}, "final", "finished", 0.5}}}};
  fs::create_directories(dir / "deep/d");
  write_text(dir / "deep/d/results.json", to_json(results));
  CHECK(names().contains("Text: softmax"));
  results.task = "selective_copy";
  write_text(dir / "deep/d/results.json", to_json(results));
  CHECK(names().contains("selective_copy: softmax"));
  // So are those of the folder itself, and equal titles are told apart.
  results.title = "Twice";
  fs::create_directories(dir / "f");
  for (const char* const folder : {"", "f"})
    write_text(dir / folder / "results.json", to_json(results));
  const std::string html = html_report(read_inputs({dir.path()}));
  CHECK(count(html, ">Twice, f</a>") == 1);
  CHECK(count(html, ">Twice, " + dir.path().filename().string() + "</a>") == 1);
  CHECK(count(html, ">Text</a>") == 1);
}

TEST_CASE("report: the page holds all data, escaped, and needs nothing else") {
  const TemporaryDirectory dir;
  make_run(dir / "a <b>&\"'", {.more = "[optimizer]\ntype = \"</script><script>alert(1)\"\n"});
  write_text(dir / "analysis.json", to_json(some_results()));
  const std::string html = html_report(read_inputs({dir / "a <b>&\"'", dir / "analysis.json"}));
  CHECK(html.starts_with("<!doctype html>"));
  CHECK(html.ends_with("</html>\n"));
  CHECK(count(html, "alert(1)") == count(html, "&gt;alert(1)"));
  CHECK(count(html, "<img") == 0);
  CHECK(count(html, "</script>") == 2);  // the data, and what is done with them
  for (const char* const text : {" src=", "<link", "@import", "url("})
    CHECK(count(html, text) == 0);
  for (const char* const tag : {"html", "body", "main", "section", "table", "tr", "pre", "dl"})
    CHECK(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " ") ==
          count(html, std::string("</") + tag + ">"));
  for (const char* const text :
       {"a machine", "train abcdef", "Longhand: 0.1.0", "12345", "/config.toml --out NEW"})
    CHECK(count(html, text) >= 1);

  const Json data = data_of(html);
  CHECK(data["variants"] == Json({"softmax"}));
  const auto titled = [&](const std::string& title) {
    const auto found = std::ranges::find(data["tables"], Json(title),
                                         [](const Json& each) { return each["title"]; });
    REQUIRE(found != data["tables"].end());
    return *found;
  };
  CHECK(titled("Errors </script><img alt=x>")["columns"][1]["values"][2] == 200);
  const Json curve = titled("Accuracy while training");
  CHECK(curve["columns"][6]["heading"] == "step 50");
  CHECK(curve["columns"][6]["values"] == Json({"0.5", "0.5"}));
}

TEST_CASE("report: times of records of earlier versions follow from their speeds") {
  const TemporaryDirectory dir;
  make_run(dir / "a", {.records = 0});
  {
    std::string lines;
    for (const auto& [step, speed] : {std::pair{10, 1.0}, {20, 1.0}, {30, 2.0}}) {
      Record r = record(step, "train", 0.5);
      r.tokens_per_second = speed;
      r.seconds.reset();
      lines += to_json(r) + "\n";
    }
    write_text(dir / "a/metrics.jsonl", lines);
  }
  // 10, 20 and 25 units of time; the run lasted 5 s.
  const ReportInputs inputs = read_inputs({dir / "a"});
  const Figure figure = figures_of(inputs, compare(inputs)).curves.at(0);
  const auto by_seconds =
      std::ranges::find(figure.views, "train seconds linear") - figure.views.begin();
  std::vector<double> seconds;
  for (const PlotPoint& point :
       figure.plots.at(static_cast<size_t>(by_seconds)).series.at(0).points)
    seconds.push_back(point.x);
  CHECK(seconds == std::vector<double>{2, 4, 5});
}

TEST_CASE("report: exponents and crossings of curves with logarithmic axes") {
  const Results results = some_results();
  const Table& table = results.tables[0];
  const auto slopes = [](const Table& of, const Chart& chart) {
    return figures_of(of, chart, {}).at(0).plots.at(0).facts;
  };
  const std::vector<std::string> found = slopes(table, table.charts[0]);
  REQUIRE(found.size() == 2);
  CHECK(found[0] == "Fitted exponents: softmax 2.00, linear 1.00.");
  CHECK(found[1] == "Below softmax: linear from about 300.");  // 1e-4 n² = 0.03 n
  // A curve that goes above again does not stay below.
  Table above = table;
  above.rows.push_back({std::string("softmax"), int64_t{1600}, 1.0});
  above.rows.push_back({std::string("linear"), int64_t{1600}, 2.0});
  CHECK(slopes(above, above.charts[0]).size() == 1);
  Table three = table;
  three.rows.resize(6);
  CHECK(slopes(three, three.charts[0])[0] == found[0]);
  three.rows.resize(4);
  for (const std::string& line : slopes(three, three.charts[0]))
    CHECK_THAT(line, !Contains("exponents"));
  Chart linear = table.charts[0];
  linear.log_y = false;
  CHECK(slopes(table, linear).empty());
}

TEST_CASE("report: heuristics are rows of the leaderboard") {
  const TemporaryDirectory dir;
  make_run(dir / "a", {.accuracy = 0.4});
  Results results;
  results.kind = "analyse heuristics";
  results.tables.push_back({.name = "heuristics",
                            .title = "Heuristics",
                            .columns = {{"predictor", ""}, {"accuracy", ""}}});
  results.tables[0].rows = {{std::string("majority"), 0.17}, {std::string("softmax model"), 0.4}};
  write_text(dir / "h.json", to_json(results));
  const Board board = compare(read_inputs({dir / "a", dir / "h.json"}));
  REQUIRE(board.leaderboard.rows.size() == 2);
  CHECK(to_text(board.leaderboard.rows[1][0]) == "heuristic: majority");
  CHECK(number_at(board.leaderboard, 1, "score") == 0.17);
  CHECK(board.variants.size() == 1);
}

TEST_CASE("report: many runs and large tables stay below 2 MB") {
  const TemporaryDirectory dir;
  for (int64_t i = 0; i < 40; ++i)
    make_run(dir / std::to_string(i),
             {.attention = "v" + std::to_string(i / 3), .seed = i % 3, .records = 300});
  Results results = some_results();
  Table& table = results.tables[0];
  for (int64_t i = 0; i < 100000; ++i)
    table.rows.push_back({std::string("softmax"), i, 1.0 / static_cast<double>(i + 3)});
  write_text(dir / "big.json", to_json(results));
  const std::string html = html_report(read_inputs({dir.path(), dir / "big.json"}));
  CHECK(html.size() < 2000000);
  CHECK(html.size() > 400000);  // compressed
  const ReportInputs inputs = read_inputs({dir.path()});
  const Figures figures = figures_of(inputs, compare(inputs));
  REQUIRE(figures.curves.size() == 4);  // 14 variants in panels of at most ten, accuracy and loss
  const Series& curve = figures.curves[0].plots[0].series[0];
  CHECK(curve.points.size() >= 60);
  CHECK(curve.points.back().x == 3000);
  CHECK(count(html, "rows; all are in ") == 1);
}

TEST_CASE("report: what several paths name is read once") {
  const TemporaryDirectory dir;
  make_run(dir / "runs/a", {});
  write_text(dir / "a.json", to_json(some_results()));
  fs::create_directory_symlink(dir / "runs/a", dir / "link");
  const ReportInputs inputs = read_inputs({dir / "runs/a", dir / "runs/../runs/a/", dir / "runs",
                                           dir / "link", dir / "a.json", dir / "./a.json"});
  CHECK(inputs.runs.size() == 1);
  CHECK(inputs.results.size() == 1);
}

TEST_CASE("report: only a report is replaced") {
  const TemporaryDirectory dir;
  make_run(dir / "a", {});
  CHECK(may_replace(dir / "new.html"));
  write_text(dir / "report.html", html_report(read_inputs({dir / "a"})));
  CHECK(may_replace(dir / "report.html"));
  write_text(dir / "empty", "");
  CHECK(may_replace(dir / "empty"));
  write_text(dir / "page.html", "<!doctype html><title>Mine</title>");
  CHECK_FALSE(may_replace(dir / "page.html"));
  CHECK_FALSE(may_replace(dir / "a"));
  CHECK_FALSE(may_replace("/dev/null"));
  CHECK_FALSE(may_replace(dir / "report.html", ReportFormat::csv));
}

TEST_CASE("report: what is not a run, a sweep or a result is refused, by name") {
  const TemporaryDirectory dir;
  CHECK_THROWS_WITH(read_inputs({dir / "none"}), Contains("none does not exist"));
  fs::create_directory(dir / "empty");
  CHECK_THROWS_AS(read_inputs({dir / "empty"}), ConfigError);
  CHECK_THROWS_WITH(read_inputs({dir / "empty"}), Contains("empty holds no run"));
  write_text(dir / "a.json", "{}");
  CHECK_THROWS_AS(read_inputs({dir / "a.json"}), DataError);
  CHECK_THROWS_WITH(read_inputs({dir / "a.json"}), Contains("a.json"));
  make_run(dir / "a", {});
  std::ofstream(dir / "a" / "metrics.jsonl", std::ios::app) << "not JSON\n";
  CHECK_THROWS_WITH(read_inputs({dir / "a"}), Contains("metrics.jsonl:11"));
  make_run(dir / "b", {});
  write_text(dir / "b" / "test.json", "[");
  CHECK_THROWS_WITH(read_inputs({dir / "b"}), Contains("test.json"));
}

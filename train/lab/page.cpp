#include "longhand/train/lab/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "longhand/core/utf8.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/lab/assets.h"
#include "longhand/train/lab/board.h"
#include "longhand/train/lab/slopes.h"
#include "longhand/train/results/codec.h"

namespace longhand::train {
namespace {

constexpr std::string_view title = "<title>Longhand report</title>";
constexpr size_t curve_points = 12000;  // of all learning curves together
constexpr size_t table_bytes = 600000;  // of all tables of results together

constexpr std::string_view chart_licence = R"(The MIT License (MIT)

Copyright (c) 2014-2022 Chart.js Contributors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.)";

std::string escape(std::string_view text) {
  constexpr std::pair<char, std::string_view> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  std::string out;
  for (const char c : text) {
    const auto* const found =
        std::ranges::find(entities, c, &std::pair<char, std::string_view>::first);
    out += found == std::end(entities) ? std::string_view(&c, 1) : found->second;
  }
  return out;
}

/// Text whose lines do not end between a number and the sign for percent.
std::string unbroken(std::string text) {
  for (size_t at = text.find(" %"); at != std::string::npos; at = text.find(" %", at))
    text.replace(at, 1, "\u00a0");
  return text;
}

/// JSON that may stand inside a script element: no text in it can end the element.
std::string script_safe(const Json& json) {
  std::string out;
  for (const char c : dump(json))
    out += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
  return out;
}

/// A number with as many digits as a chart shows, to save space.
Json number(double value) {
  if (std::isnan(value)) return nullptr;
  return json_number(std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr));
}

Json json(const Cell& cell) {
  if (const auto* const value = std::get_if<double>(&cell)) return number(*value);
  if (const auto* const text = std::get_if<std::string>(&cell)) return printable(*text);
  constexpr int64_t most = int64_t{1} << 53;  // above it, numbers of JavaScript lack some integers
  const auto* const integer = std::get_if<int64_t>(&cell);
  if (integer && (*integer < -most || *integer > most)) return std::to_string(*integer);
  return json_of(cell);
}

// ----------------------------------------------------------------------------------------------
// Data for the script.

/// Times of records that lack them, from speeds and from the duration of the run.
std::vector<double> seconds_of(const ReportedRun& run) {
  std::vector<double> recorded, estimated;
  double time = 0;
  int64_t step = 0;
  for (const Record& record : run.record.metrics) {
    if (record.seconds) recorded.push_back(*record.seconds);
    if (record.split == "train") {
      const double speed = record.tokens_per_second;
      if (speed > 0) time += static_cast<double>(record.step - step) / speed;
      step = record.step;
    }
    estimated.push_back(time);
  }
  if (recorded.size() == estimated.size()) return recorded;
  const auto& summary = run.record.summary;
  const bool known = time > 0 && summary && summary->seconds > 0;
  for (double& each : estimated) each *= known ? summary->seconds / time : std::nan("");
  return estimated;
}

/// The records of one split, at most one (the last) for each `width` steps.
Json curve_of(const ReportedRun& run, const std::vector<double>& seconds, const char* split,
              int64_t width) {
  std::vector<size_t> kept;
  const std::vector<Record>& metrics = run.record.metrics;
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (metrics[i].split != split) continue;
    if (kept.size() > 1 && metrics[kept.back()].step / width == metrics[i].step / width)
      kept.back() = i;
    else
      kept.push_back(i);
  }
  Json out = {{"step", Json::array()},
              {"seconds", Json::array()},
              {"loss", Json::array()},
              {"accuracy", Json::array()}};
  for (const size_t i : kept) {
    out["step"].push_back(metrics[i].step);
    out["seconds"].push_back(number(seconds[i]));
    out["loss"].push_back(number(metrics[i].loss));
    out["accuracy"].push_back(number(metrics[i].accuracy));
  }
  return out;
}

/// The number of steps of which curves keep one record, so that all of them together are small.
int64_t curve_width(const ReportInputs& inputs) {
  int64_t last = 1;
  size_t count = 0;
  for (const ReportedRun& run : inputs.runs)
    if (!run.record.metrics.empty()) {
      last = std::max(last, run.record.metrics.back().step);
      count += 2;
    }
  const auto points =
      static_cast<int64_t>(std::clamp<size_t>(curve_points / std::max<size_t>(count, 1), 12, 300));
  return (last + points - 1) / points;
}

Json curves(const ReportInputs& inputs, const Board& board) {
  const int64_t width = curve_width(inputs);
  Json out = Json::array();
  for (size_t i = 0; i < inputs.runs.size(); ++i) {
    const ReportedRun& run = inputs.runs[i];
    if (!board.variant_of[i] || run.record.metrics.empty()) continue;
    const std::vector<double> seconds = seconds_of(run);
    out.push_back({{"variant", *board.variant_of[i]},
                   {"seed", run.seed},
                   {"status", run.status},
                   {"name", run.record.name},
                   {"train", curve_of(run, seconds, "train", width)},
                   {"validation", curve_of(run, seconds, "validation", width)}});
  }
  return out;
}

/// A table by columns, with at most so many rows.
Json json(const Table& table, size_t rows) {
  Json out = {{"name", table.name},
              {"columns", json_of(table.columns)},
              {"rows", table.rows.size()},
              {"charts", json_of(table.charts)}};
  for (size_t i = 0; i < table.columns.size(); ++i) {
    Json& values = out["columns"][i]["values"] = Json::array();
    for (size_t r = 0; r < std::min(rows, table.rows.size()); ++r)
      values.push_back(json(table.rows[r][i]));
    const bool integers = std::ranges::none_of(
        table.rows, [&](const auto& row) { return std::holds_alternative<double>(row[i]); });
    if (integers) out["columns"][i]["digits"] = 16;  // all that they have
  }
  for (size_t i = 0; i < table.charts.size(); ++i)
    out["charts"][i]["facts"] = slopes(table, table.charts[i]);
  if (!table.marked.empty()) out["marked"] = table.marked;
  return out;
}

/// The most rows of a table such that all tables together fit into table_bytes.
size_t rows_per_table(const ReportInputs& inputs) {
  std::vector<std::pair<size_t, double>> tables;  // rows, and bytes of a row
  for (const auto& [path, results] : inputs.results)
    for (const Table& table : results.tables)
      if (!table.rows.empty()) {
        const size_t sample = std::min<size_t>(table.rows.size(), 200);
        tables.emplace_back(
            table.rows.size(),
            static_cast<double>(dump(json(table, sample)).size()) / static_cast<double>(sample));
      }
  size_t rows = size_t{1} << 20;
  for (; rows > 50; rows = rows * 4 / 5) {
    double bytes = 0;
    for (const auto& [count, row] : tables)
      bytes += row * static_cast<double>(std::min(rows, count));
    if (bytes <= table_bytes) break;
  }
  return rows;
}

// ----------------------------------------------------------------------------------------------
// HTML.

/// A script element's contents cannot hold its end tag; Chart.js and page.js have none.
std::string script(std::string_view text, const std::string& nonce) {
  return "<script nonce=\"" + nonce + "\">" + std::string(text) + "</script>\n";
}

class Page {
 public:
  explicit Page(const ReportInputs& inputs)
      : inputs_(inputs), board_(compare(inputs)), rows_(rows_per_table(inputs)) {}

  std::string html() {
    std::string body = header();
    if (!inputs_.runs.empty()) body += leaderboard() + learning_curves();
    for (size_t i = 0; i < inputs_.results.size(); ++i) body += results(i);
    if (!inputs_.runs.empty()) body += runs();
    body = printable(body + footer());
    const std::string json = script_safe(data_);
    const std::string hashed = body + json;
    // Texts of the page cannot contain a digest of themselves, so that a script in them does not run.
    const std::string nonce = data::hex(data::digest(std::as_bytes(std::span<const char>(hashed))));
    std::string out =
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
        "'nonce-" +
        nonce +
        "'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\">" +
        std::string(title) + "\n<style>" + std::string(page_css()) + "</style></head>\n<body>\n" +
        body;
    out += "<script type=\"application/json\" id=\"data\">" + json + "</script>\n";
    out += script(chart_js(), nonce) + script(page_js(), nonce);
    return out + "</body></html>\n";
  }

 private:
  /// Adds a table to the data of the script, with at most so many rows, and returns its index.
  size_t add(const Table& table, size_t rows) {
    data_["tables"].push_back(json(table, rows));
    data_["tables"].back()["title"] = table.title;
    return data_["tables"].size() - 1;
  }

  /// Adds a table of results and returns where its charts and itself appear.
  std::string placed(const Table& table, const std::string& source, bool open) {
    const size_t index = add(table, rows_);
    std::string out = fmt::format(
        "<div class=\"charts\" data-charts=\"{}\"></div>\n<div data-table=\"{}\"{}></div>\n", index,
        index, open && table.charts.empty() ? " data-open" : "");
    if (!table.marked.empty())
      out += fmt::format("<p class=\"note\">* {}</p>\n", escape(table.mark));
    if (table.rows.size() > rows_)
      out += fmt::format("<p class=\"note\">The first {} of {} rows; all are in {}.</p>\n", rows_,
                         table.rows.size(), escape(source));
    return out;
  }

  std::string header() {
    data_ = {{"variants", board_.variants},
             {"curves", curves(inputs_, board_)},
             {"tables", Json::array()}};
    std::string out = "<header><p class=\"mark\">Longhand report</p>\n";
    std::vector<std::string> sentences = board_.summary;
    if (inputs_.runs.empty())
      for (const auto& [path, results] : inputs_.results)
        if (!results.summary.empty()) sentences.push_back(results.summary);
    if (sentences.empty() && !inputs_.results.empty())
      sentences.push_back(inputs_.results[0].results.title);
    for (size_t i = 0; i < sentences.size(); ++i)
      out += fmt::format(fmt::runtime(i == 0 ? "<h1>{}</h1>\n" : "<p class=\"lead\">{}</p>\n"),
                         unbroken(escape(sentences[i])));
    out += "<nav aria-label=\"Sections\">";
    if (!inputs_.runs.empty())
      out += "<a href=\"#leaderboard\">Leaderboard</a><a href=\"#curves\">Learning curves</a>";
    for (size_t i = 0; i < inputs_.results.size(); ++i)
      out += fmt::format("<a href=\"#results-{}\">{}</a>", i,
                         escape(inputs_.results[i].results.title));
    if (!inputs_.runs.empty()) out += "<a href=\"#runs\">Runs</a>";
    return out +
           "</nav>\n<noscript><p class=\"note\">Tables and charts need JavaScript.</p></noscript>"
           "</header>\n<main>\n";
  }

  std::string leaderboard() {
    return fmt::format(
        "<section id=\"leaderboard\"><h2>Leaderboard</h2>\n<div data-whole=\"{0}\"></div>\n"
        "<p class=\"note\">Means over seeds of the runs that did not fail, with 95 % intervals "
        "(Student’s t) of the mean. The dot is the mean, the line its interval. Click a heading to "
        "sort.</p>\n<div class=\"charts\" data-charts=\"{0}\"></div>\n</section>\n",
        add(board_.leaderboard, board_.leaderboard.rows.size()));
  }

  std::string learning_curves() {
    const int64_t width = curve_width(inputs_);
    const std::string thinned =
        width > 1 ? fmt::format(" Of each {} steps, curves show the last record.", width) : "";
    return "<section id=\"curves\"><h2>Learning curves</h2>\n<div id=\"curve-charts\"></div>\n"
           "<p class=\"note\">Lines are means over seeds, bands reach from the lowest to the "
           "highest. A run that ended keeps its last value." +
           thinned + "</p></section>\n";
  }

  std::string results(size_t i) {
    const auto& [path, results] = inputs_.results[i];
    std::string out = fmt::format("<section id=\"results-{}\"><h2>{}</h2>\n", i,
                                  escape(results.title.empty() ? results.kind : results.title));
    if (!results.summary.empty())
      out += fmt::format("<p class=\"lead\">{}</p>\n", escape(results.summary));
    for (const Table& table : results.tables) {
      out += fmt::format("<h3>{}</h3>\n", escape(table.title));
      if (!table.note.empty()) out += fmt::format("<p class=\"note\">{}</p>\n", escape(table.note));
      // The cells of a sweep are the runs below.
      out += placed(table, path, results.kind != "ablate" || table.name != "cells");
    }
    out += "<dl class=\"provenance\">";
    for (const auto& [name, value] : {std::pair{"command", results.command},
                                      {"machine", results.machine},
                                      {"date", results.date},
                                      {"Longhand", results.version},
                                      {"file", path}})
      if (!value.empty())
        out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape(value));
    return out + "</dl></section>\n";
  }

  std::string runs() {
    std::string out =
        fmt::format("<section id=\"runs\"><h2>Runs</h2>\n<div data-whole=\"{}\"></div>\n",
                    add(board_.runs, board_.runs.rows.size()));
    if (!board_.provenance.empty())
      out += fmt::format("<p class=\"note\">Of all runs: {}.</p>\n",
                         escape(fmt::format("{}", fmt::join(board_.provenance, "; "))));
    if (!board_.shared.empty())
      out += fmt::format(
          "<details><summary>The configuration that all runs share</summary>"
          "<pre>{}</pre></details>\n",
          escape(toml_of_options(board_.shared)));
    for (size_t i = 0; i < board_.variants.size(); ++i)
      if (!board_.own[i].empty())
        out += fmt::format(
            "<details><summary>Further options of {}</summary><pre>{}</pre></details>\n",
            escape(board_.variants[i]), escape(toml_of_options(board_.own[i])));
    return out + "</section>\n";
  }

  std::string footer() const {
    return fmt::format(
        "</main>\n<footer><p>Written by Longhand {} on {}. Charts are drawn by Chart.js, which is "
        "part of this page.</p><details><summary>Licence of Chart.js</summary><pre "
        "class=\"licence\">{}</pre></details></footer>\n",
        version(), utc_now(), escape(chart_licence));
  }

  const ReportInputs& inputs_;
  Board board_;
  size_t rows_;  // of a table of results
  Json data_;
};

}  // namespace

bool may_replace(const std::filesystem::path& file, ReportFormat format) {
  if (!std::filesystem::exists(file)) return true;
  if (!std::filesystem::is_regular_file(file)) return false;
  std::ifstream in(file, std::ios::binary);
  std::string begin(1000, '\0');
  in.read(begin.data(), std::ssize(begin));
  if (in.gcount() == 0) return true;
  switch (format) {
    case ReportFormat::html:
      return begin.starts_with("<!doctype html>\n") && begin.find(title) != std::string::npos;
    case ReportFormat::csv:  // the first columns of Board::runs
      return begin.starts_with("run,variant,");
    case ReportFormat::json:
      return begin.starts_with("{\n \"kind\": \"report\",");
  }
  return false;
}

std::string html_report(const ReportInputs& inputs) { return Page(inputs).html(); }

std::string html_report(const std::vector<std::filesystem::path>& paths) {
  return html_report(read_inputs(paths));
}

}  // namespace longhand::train

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
  const auto* const value = std::get_if<double>(&cell);
  return value ? number(*value) : json_of(cell);
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

/// The cell with a bar of its interval, between the least and the greatest end of all intervals.
std::string interval_bar(const Table& table, const std::vector<Cell>& row) {
  const auto value = [&](const std::vector<Cell>& of, const char* name) {
    const auto found = number_in(of[table.column(name)]);
    return found && std::isfinite(*found) ? *found : std::nan("");
  };
  double least = INFINITY, greatest = -INFINITY;
  for (const auto& each : table.rows) {
    const double mean = value(each, "score");
    for (const char* const name : {"score", "low", "high"}) {
      const double end = value(each, name);
      // An interval of two seeds may be far wider than everything that can be measured.
      if (std::isnan(end) || end < std::min(0.0, mean) || end > std::max(1.0, mean)) continue;
      least = std::min(least, end);
      greatest = std::max(greatest, end);
    }
  }
  const double mean = value(row, "score");
  if (std::isnan(mean) || !(greatest > least)) return "";
  const auto place = [&](double x) {
    return 100 * (std::clamp(x, least, greatest) - least) / (greatest - least);
  };
  const double low = value(row, "low"), high = value(row, "high");
  std::string out = "<span class=\"interval\" aria-hidden=\"true\">";
  if (!std::isnan(low) && !std::isnan(high))
    out += fmt::format("<i style=\"left:{:.1f}%;width:{:.1f}%\"></i>", place(low),
                       place(high) - place(low));
  return out + fmt::format("<b style=\"left:{:.1f}%\"></b></span>", place(mean));
}

/// A number with a narrow space between groups of three digits, if it is an integer of at least five.
std::string grouped_number(const std::string& text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  const bool is_long =
      text.size() >= sign + 5 && text.find_first_not_of("0123456789", sign) == std::string::npos;
  return is_long ? grouped(text, "\u202f") : text;
}

/// The columns worth showing: not those without values, nor those that repeat the first.
std::vector<size_t> shown_columns(const Table& table) {
  std::vector<size_t> out;
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (std::ranges::any_of(table.rows, [&](const auto& row) {
          return !std::holds_alternative<std::monostate>(row[i]) && (i == 0 || row[i] != row[0]);
        }))
      out.push_back(i);
  return out;
}

/// A table whose columns a reader can sort. In `board`, the first column names variants.
std::string html_table(const Table& table, bool board) {
  std::string out = fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">"
      "<table class=\"sortable{}\"><caption>{}</caption>\n<thead><tr>",
      escape(table.title), board ? " board" : "", escape(table.title));
  const std::vector<size_t> columns = shown_columns(table);
  const std::vector<bool> numeric = numeric_columns(table);
  for (const size_t i : columns)
    out += fmt::format("<th scope=\"col\"{}><button type=\"button\">{}</button></th>",
                       numeric[i] ? " class=\"n\"" : "", escape(table.columns[i].shown()));
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    const bool heuristic =
        board && std::holds_alternative<std::monostate>(row[table.column("seeds")]);
    out += heuristic ? "<tr class=\"heuristic\">" : "<tr>";
    for (const size_t i : columns) {
      const std::string text = to_text(row[i], table.columns[i].digits);
      const std::string variant =
          board && i == 0 && !heuristic ? fmt::format(" data-variant=\"{}\"", escape(text)) : "";
      out += fmt::format("<{}{}{}>", i == 0 ? "th scope=\"row\"" : "td",
                         numeric[i] ? " class=\"n\"" : "", variant);
      if (numeric[i])
        out += grouped_number(text);
      else if (i > 0 && text.size() > 60 && table.columns[i].name != "command")
        out += fmt::format("<details class=\"long\"><summary>{}…</summary>{}</details>",
                           escape(first_characters(text, 30)), escape(text));
      else
        out += escape(text);
      if (board && table.columns[i].name == "score") out += interval_bar(table, row);
      out += i == 0 ? "</th>" : "</td>";
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

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
  /// Adds a table to the data of the script and returns where its charts and itself appear.
  std::string placed(const Table& table, size_t rows, const std::string& source, bool open) {
    const size_t index = data_["tables"].size();
    data_["tables"].push_back(json(table, rows));
    data_["tables"].back()["title"] = table.title;
    std::string out = fmt::format("<div class=\"charts\" data-charts=\"{}\"></div>\n", index);
    if (&table == &board_.leaderboard) return out;
    out += fmt::format("<div data-table=\"{}\"{}></div>\n", index,
                       open && table.charts.empty() ? " data-open" : "");
    if (!table.marked.empty())
      out += fmt::format("<p class=\"note\">* {}</p>\n", escape(table.mark));
    if (table.rows.size() > rows)
      out += fmt::format("<p class=\"note\">The first {} of {} rows; all are in {}.</p>\n", rows,
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
           "</nav>\n<noscript><p class=\"note\">Charts need JavaScript.</p></noscript>"
           "</header>\n<main>\n";
  }

  std::string leaderboard() {
    std::string out = "<section id=\"leaderboard\"><h2>Leaderboard</h2>\n";
    out += html_table(board_.leaderboard, true);
    out +=
        "<p class=\"note\">Means over seeds of the runs that did not fail, with 95 % intervals "
        "(Student’s t) of the mean. The dot is the mean, the line its interval. Click a heading to "
        "sort.</p>\n";
    return out + placed(board_.leaderboard, board_.leaderboard.rows.size(), "", false) +
           "</section>\n";
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
      out += placed(table, rows_, path, results.kind != "ablate" || table.name != "cells");
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
    std::string out = "<section id=\"runs\"><h2>Runs</h2>\n" + html_table(board_.runs, false);
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

#include "longhand/train/lab/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "longhand/core/utf8.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/lab/report/board.h"
#include "longhand/train/lab/report/charts.h"
#include "longhand/train/results/codec.h"

namespace longhand::train {
namespace {

constexpr std::string_view title = "<title>Longhand report</title>";
constexpr size_t table_bytes = 1500000;  // for all tables of results together
constexpr size_t plain_bytes = 500000;   // of a page's data; more are compressed

/// Returns a paragraph with a class, with its text escaped.
std::string paragraph(const char* kind, const std::string& text) {
  return fmt::format("<p class=\"{}\">{}</p>\n", kind, escape_markup(text));
}

/// Prevents line breaks between a number and its percent sign.
std::string unbroken(std::string text) {
  for (size_t at = text.find(" %"); at != std::string::npos; at = text.find(" %", at))
    text.replace(at, 1, "\u00a0");
  return text;
}

Json json(const Cell& cell) {
  if (const auto* const value = std::get_if<double>(&cell)) {
    if (std::isnan(*value)) return nullptr;
    // As many digits as a chart shows, to save space.
    return json_number(std::strtod(fmt::format("{:.6g}", *value).c_str(), nullptr));
  }
  if (const auto* const text = std::get_if<std::string>(&cell)) return printable(*text);
  constexpr int64_t most = int64_t{1} << 53;  // above it, JavaScript numbers lack some integers
  const auto* const integer = std::get_if<int64_t>(&cell);
  if (integer && (*integer < -most || *integer > most)) return std::to_string(*integer);
  return json_of(cell);
}

/// Returns a table by columns, with at most `rows` rows.
Json json(const Table& table, size_t rows) {
  Json out = {{"name", table.name},
              {"title", table.title},
              {"columns", json_of(table.columns)},
              {"rows", table.rows.size()}};
  for (size_t i = 0; i < table.columns.size(); ++i) {
    Json& values = out["columns"][i]["values"] = Json::array();
    for (size_t r = 0; r < std::min(rows, table.rows.size()); ++r)
      values.push_back(json(table.rows[r][i]));
    const bool integers = std::ranges::none_of(
        table.rows, [&](const auto& row) { return std::holds_alternative<double>(row[i]); });
    if (integers) out["columns"][i]["digits"] = 16;  // all digits
  }
  if (!table.marked.empty()) out["marked"] = table.marked;
  if (!table.best.empty()) out["best"] = table.best;
  return out;
}

/// Returns the maximum rows per table such that all tables fit into table_bytes.
size_t rows_per_table(const ReportInputs& inputs) {
  std::vector<std::pair<size_t, double>> tables;  // rows, and bytes per row
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

class Page {
 public:
  explicit Page(const ReportInputs& inputs)
      : inputs_(inputs),
        board_(compare(inputs)),
        figures_(figures_of(inputs, board_)),
        rows_(rows_per_table(inputs)) {}

  std::string html() {
    std::string body = header();
    if (!inputs_.runs.empty()) body += leaderboard();
    if (!figures_.curves.empty()) body += learning_curves();
    for (size_t i = 0; i < inputs_.results.size(); ++i) body += results(i);
    if (!inputs_.runs.empty()) body += runs();
    body += fmt::format("</main>\n<footer><p>Written by Longhand {} on {}.</p></footer>\n",
                        version(), utc_now());
    body = printable(body);
    // Inside a script element, text must not end the element.
    std::string json = replaced(dump(data_), '<', "\\u003c");
    if (json.size() > plain_bytes) json = base64(compressed(json));
    // Texts of the page cannot contain a digest of themselves, so scripts in them do not run.
    const std::string nonce = data::text_digest(body + json);
    // A script element cannot contain its own end tag; page.js has none.
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
        "'nonce-{0}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
        "'none'\">"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\">{1}\n"
        "<style>{2}{3}</style></head>\n<body>\n{4}"
        "<script type=\"application/json\" id=\"data\">{5}</script>\n"
        "<script nonce=\"{0}\">{6}</script>\n</body></html>\n",
        nonce, title, page_css(), style_of_charts(), body, json, page_js());
  }

 private:
  /// Adds a table to the script's data, with at most `rows` rows, and returns its index.
  size_t add(const Table& table, size_t rows = SIZE_MAX) {
    data_["tables"].push_back(json(table, rows));
    return data_["tables"].size() - 1;
  }

  /// Returns a picture with its text; the script adds buttons and the table of its numbers.
  std::string figure(const Figure& figure, size_t table, size_t rows) {
    const std::string name = unique_name(figure.title, ids_);
    std::vector<std::string> facts;
    std::string pictures;
    for (size_t i = 0; i < figure.plots.size(); ++i) {
      const auto canvas = svg_canvas({});
      facts.insert(facts.end(), figure.plots[i].facts.begin(), figure.plots[i].facts.end());
      const std::string picture = draw(figure.plots[i], *canvas, &facts);
      const std::string view = figure.views.empty() ? "" : " data-view=\"" + figure.views[i] + '"';
      pictures +=
          fmt::format("<div class=\"picture\" role=\"img\" aria-label=\"{}\"{}{}>{}</div>\n",
                      escape_markup(figure.plots[i].title), view, i > 0 ? " hidden" : "", picture);
    }
    const bool own = !figure.numbers.rows.empty();
    Json numbers = {{"table", own ? add(figure.numbers) : table}};
    if (!figure.columns.empty()) numbers["columns"] = figure.columns;
    for (const size_t row : figure.rows)
      if (row < rows) numbers["rows"].push_back(row);
    data_["numbers"].push_back(std::move(numbers));
    const bool wide = figure.plots[0].kind == Plot::Kind::timeline ||
                      (!figure.plots[0].maps.empty() && figure.plots[0].maps[0].width > 8);
    std::string out = fmt::format(
        "<figure id=\"{0}\"{1} data-numbers=\"{2}\"><figcaption><a href=\"#{0}\">{3}</a>"
        "</figcaption>\n{4}",
        name, wide ? " class=\"wide\"" : "", data_["numbers"].size() - 1,
        escape_markup(figure.title), pictures);
    const std::set<std::string> said(facts.begin(), facts.end());
    if (!said.empty()) out += paragraph("facts", fmt::format("{}", fmt::join(said, " ")));
    return out + "</figure>\n";
  }

  /// Contents that the page creates when opened. Attributes: data-print, also for print; open.
  std::string folded(const std::string& summary, const std::string& contents,
                     const char* attributes = "") {
    data_["folded"].push_back(printable(contents));
    return fmt::format(
        "<details class=\"panels\" data-folded=\"{}\"{}><summary>{}</summary></details>\n",
        data_["folded"].size() - 1, attributes, summary);
  }

  /// Places figures side by side; many panels of one chart are initially closed.
  std::string figures(const std::vector<Figure>& all, size_t table, size_t rows = SIZE_MAX) {
    constexpr size_t most = 6, most_printed = 24, most_bytes = 200000;
    std::string open, closed;
    for (size_t begin = 0; begin < all.size();) {
      size_t end = begin;
      while (end < all.size() && all[end].chart == all[begin].chart) ++end;
      std::string drawn;
      for (size_t i = begin; i < end; ++i) drawn += figure(all[i], table, rows);
      const bool few = end - begin <= most;
      if (few && drawn.size() <= most_bytes)
        open += drawn;
      else
        closed +=
            folded(few ? escape_markup(all[begin].title)
                       : fmt::format("{}: {} charts", escape_markup(all[begin].chart), end - begin),
                   fmt::format("<div class=\"charts\">\n{}</div>\n", drawn),
                   few                           ? " data-print open"
                   : end - begin <= most_printed ? " data-print"
                                                 : "");
      begin = end;
    }
    return open.empty() ? closed
                        : fmt::format("<div class=\"charts\">\n{}</div>\n{}", open, closed);
  }

  std::string header() {
    data_ = {{"variants", board_.variants},
             {"hues", figures_.hues},
             {"tables", Json::array()},
             {"numbers", Json::array()},
             {"folded", Json::array()}};
    std::string out = "<header><p class=\"mark\">Longhand report</p>\n";
    std::vector<std::string> sentences;
    for (const auto& [path, results] : inputs_.results)  // comparisons, as requested
      if ((results.kind == "report" || inputs_.runs.empty()) && !results.summary.empty())
        sentences.push_back(results.summary);
    sentences.insert(sentences.end(), board_.summary.begin(), board_.summary.end());
    if (sentences.empty() && !inputs_.results.empty())
      sentences.push_back(inputs_.results[0].results.title);
    std::string lead;
    for (size_t i = 0; i < sentences.size(); ++i)
      if (const std::string text = unbroken(sentences[i]); i == 0)
        out += fmt::format("<h1>{}</h1>\n", escape_markup(text));
      else
        lead += paragraph("lead", text);
    constexpr size_t most = 5;  // before the overview
    out += sentences.size() <= most
               ? lead
               : "<details class=\"panels\" data-print><summary>What the scores say of each "
                 "task</summary>" +
                     lead + "</details>\n";
    out += "<nav aria-label=\"Sections\">";
    if (!inputs_.runs.empty()) out += "<a href=\"#leaderboard\">Leaderboard</a>";
    if (!figures_.curves.empty()) out += "<a href=\"#curves\">Learning curves</a>";
    for (size_t i = 0; i < inputs_.results.size(); ++i)
      out += fmt::format("<a href=\"#results-{}\">{}</a>", i, escape_markup(heading(i)));
    if (!inputs_.runs.empty()) out += "<a href=\"#runs\">Runs</a>";
    return out +
           "</nav>\n<noscript><p class=\"note\">Tables, and what is closed, need "
           "JavaScript.</p></noscript>"
           "</header>\n<main>\n";
  }

  /// Returns a table with all its rows; a long one is initially closed.
  static std::string long_table(size_t index, size_t rows, const char* what) {
    constexpr size_t most = 60, most_printed = 200;
    const std::string table = fmt::format("<div data-whole=\"{}\"></div>\n", index);
    if (rows <= most) return table;
    return fmt::format("<details class=\"panels\"{}><summary>{} {}</summary>{}</details>\n",
                       rows <= most_printed ? " data-print" : "", rows, what, table);
  }

  std::string leaderboard() {
    const size_t index = add(board_.leaderboard);
    std::string out = "<section id=\"leaderboard\">";
    if (!figures_.matrix.empty())
      out += "<h2>Tasks and variants</h2>\n" + figures(figures_.matrix, add(board_.matrix));
    out += "<h2>Leaderboard</h2>\n" + long_table(index, board_.leaderboard.rows.size(),
                                                 board_.tasks.size() > 1
                                                     ? "rows: each variant at each of its tasks"
                                                     : "variants");
    const bool several =
        std::ranges::any_of(board_.scores, [](const SeedScores& each) { return each.size() > 1; });
    const char* const note =
        several
            ? "Means over seeds of the runs that did not fail, with 95 % intervals (Student’s t; "
              "of an accuracy also for the choice of the test examples, where their number is "
              "known). The dot is the mean, the line its interval. Bold: the best of a task, and "
              "what seeds do not tell apart from it. Click a heading to sort."
            : "One seed of each: there are no intervals. Click a heading to sort.";
    return out + paragraph("note", note) + figures(figures_.leaderboard, index) + "</section>\n";
  }

  std::string learning_curves() {
    const std::string thinned =
        figures_.curve_steps > 1
            ? fmt::format(" Of each {} steps, curves show the last record.", figures_.curve_steps)
            : "";
    Json& views = data_["views"] = Json::array();
    for (const Figure& each : figures_.curves)
      for (const std::string& view : each.views)
        if (std::ranges::find(views, Json(view)) == views.end()) views.push_back(view);
    return "<section id=\"curves\"><h2>Learning curves</h2>\n<div id=\"views\"></div>\n" +
           figures(figures_.curves, 0) +
           "<p class=\"note\">Lines are means over seeds, bands reach from the lowest to the "
           "highest. A run that ended keeps its last value; one that failed is a dotted line of "
           "its own." +
           thinned + "</p></section>\n";
  }

  /// Returns the title of results; if others have the same, with the name of their folder.
  std::string heading(size_t i) const {
    const auto title_of = [](const ReportedResults& each) {
      return each.results.title.empty() ? each.results.kind : each.results.title;
    };
    const ReportedResults& own = inputs_.results[i];
    const std::string out = title_of(own);
    return std::ranges::count(inputs_.results, out, title_of) < 2
               ? out
               : out + ", " + std::filesystem::path(own.name()).filename().string();
  }

  std::string results(size_t i) {
    const auto& [path, results] = inputs_.results[i];
    std::string out =
        fmt::format("<section id=\"results-{}\"><h2>{}</h2>\n", i, escape_markup(heading(i)));
    std::string summary = results.summary;
    for (const std::string& said : board_.summary)  // above
      if (const size_t at = summary.find(said); at != std::string::npos)
        summary.erase(at, said.size() + 1);
    if (!summary.empty()) out += paragraph("lead", summary);
    for (size_t t = 0; t < results.tables.size(); ++t) {
      const Table& table = results.tables[t];
      out += fmt::format("<h3>{}</h3>\n", escape_markup(table.title));
      if (!table.note.empty()) out += paragraph("note", table.note);
      const std::vector<Figure>& drawn = figures_.results[i][t];
      const size_t index = add(table, rows_);
      // The cells of a sweep are listed as runs below.
      const bool open = drawn.empty() && (results.kind != "ablate" || table.name != "cells");
      out += figures(drawn, index, rows_) +
             fmt::format("<div data-table=\"{}\"{}></div>\n", index, open ? " data-open" : "");
      if (!table.charts.empty() && table.rows.empty())
        out += paragraph("note", "There are no values.");
      if (!table.marked.empty()) out += paragraph("note", "* " + table.mark);
      if (table.rows.size() > rows_)
        out += paragraph("note", fmt::format("The first {} of {} rows; all are in {}.", rows_,
                                             table.rows.size(), path));
    }
    out += "<dl class=\"provenance\">";
    for (const auto& [name, value] : {std::pair{"command", results.command},
                                      {"machine", results.machine},
                                      {"date", results.date},
                                      {"Longhand", results.version},
                                      {"file", path}})
      if (!value.empty())
        out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape_markup(value));
    for (const auto& [name, value] : results.provenance)
      out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape_markup(value));
    return out + "</dl></section>\n";
  }

  std::string runs() {
    std::string out = "<section id=\"runs\"><h2>Runs</h2>\n" +
                      long_table(add(board_.runs), board_.runs.rows.size(), "runs");
    if (!board_.provenance.empty())
      out += paragraph("note", fmt::format("Of all runs: {}.", fmt::join(board_.provenance, "; ")));
    if (!board_.shared.empty())
      out += fmt::format(
          "<details><summary>The configuration that all runs share</summary>"
          "<pre>{}</pre></details>\n",
          escape_markup(toml_of_options(board_.shared)));
    std::string own;
    for (size_t i = 0; i < board_.variants.size(); ++i)
      if (!board_.own[i].empty())
        own += fmt::format(
            "<details><summary>Further options of {}</summary><pre>{}</pre></details>\n",
            escape_markup(board_.variants[i]), escape_markup(toml_of_options(board_.own[i])));
    constexpr size_t most = 8;
    out += board_.variants.size() <= most ? own : folded("Further options of each variant", own);
    return out + "</section>\n";
  }

  const ReportInputs& inputs_;
  Board board_;
  Figures figures_;
  size_t rows_;                        // per table of results
  std::map<std::string, size_t> ids_;  // ids of figures, and how often each was requested
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
  // How each format begins, and what follows soon after. CSV: the first columns of Board::runs.
  static const std::map<ReportFormat, std::pair<std::string_view, std::string_view>> marks = {
      {ReportFormat::html, {"<!doctype html>\n", title}},
      {ReportFormat::csv, {"run,variant,", ""}},
      {ReportFormat::json, {"{\n \"kind\": \"report\",", ""}},
      {ReportFormat::figure, {"", "Longhand figure"}}};
  const auto& [first, held] = marks.at(format);
  return begin.starts_with(first) && begin.find(held) != std::string::npos;
}

std::string html_report(const ReportInputs& inputs) { return Page(inputs).html(); }

}  // namespace longhand::train

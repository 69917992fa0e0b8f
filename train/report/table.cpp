#include "longhand/train/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

using Json = nlohmann::ordered_json;

const std::string& heading(const Column& column) {
  return column.heading.empty() ? column.name : column.heading;
}

/// Columns without text are aligned to the right.
std::vector<bool> numeric_columns(const Table& table) {
  std::vector<bool> numeric(table.columns.size(), true);
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (std::holds_alternative<std::string>(row[i])) numeric[i] = false;
  return numeric;
}

// Number of characters of UTF-8 text.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

std::string not_finite(double value) {
  if (std::isnan(value)) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

/// All digits: reading the text gives the same value.
std::string exact(const Cell& cell) {
  if (const auto* const text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* const integer = std::get_if<int64_t>(&cell)) return fmt::format("{}", *integer);
  if (const auto* const number = std::get_if<double>(&cell))
    return std::isfinite(*number) ? fmt::format("{}", *number) : not_finite(*number);
  return "";
}

std::string replaced(const std::string& text, char what, const std::string& by) {
  std::string out;
  for (const char c : text) out += c == what ? by : std::string(1, c);
  return out;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return fmt::format("\"{}\"", replaced(text, '"', "\"\""));
}

std::string latex(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\textbackslash{}";
    else if (c == '~' || c == '^')
      out.append("\\").append(1, c).append("{}");
    else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos)
      out.append("\\").append(1, c);
    else
      out += c;
  }
  return out;
}

Json json(const Cell& cell) {
  if (const auto* const text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* const integer = std::get_if<int64_t>(&cell)) return *integer;
  if (const auto* const number = std::get_if<double>(&cell))
    return std::isfinite(*number) ? Json(*number) : Json(not_finite(*number));
  return nullptr;
}

Cell cell_of(const Json& value) {
  if (value.is_null()) return {};
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  auto text = value.get<std::string>();
  for (const double each :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()})
    if (text == not_finite(each)) return each;
  return text;
}

Json json(const Chart& chart) {
  return {{"title", chart.title},   {"x", chart.x},          {"y", chart.y},
          {"series", chart.series}, {"low", chart.low},      {"high", chart.high},
          {"log_x", chart.log_x},   {"log_y", chart.log_y},  {"bars", chart.bars},
          {"theory", chart.theory}, {"colour", chart.colour}};
}

Chart chart_of(const Json& value) {
  Chart chart;
  value.at("title").get_to(chart.title);
  value.at("x").get_to(chart.x);
  value.at("y").get_to(chart.y);
  value.at("series").get_to(chart.series);
  value.at("low").get_to(chart.low);
  value.at("high").get_to(chart.high);
  value.at("log_x").get_to(chart.log_x);
  value.at("log_y").get_to(chart.log_y);
  value.at("bars").get_to(chart.bars);
  chart.theory = value.value("theory", "");
  chart.colour = value.value("colour", "");
  return chart;
}

Json json(const Table& table) {
  table.check();
  Json out = {{"name", table.name}, {"title", table.title}, {"note", table.note}};
  for (const char* const list : {"columns", "rows", "charts"}) out[list] = Json::array();
  for (const Column& column : table.columns)
    out["columns"].push_back(
        {{"name", column.name}, {"heading", heading(column)}, {"digits", column.digits}});
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) cells.push_back(json(cell));
    out["rows"].push_back(std::move(cells));
  }
  for (const Chart& chart : table.charts) out["charts"].push_back(json(chart));
  return out;
}

Table table_of(const Json& value) {
  Table table;
  value.at("name").get_to(table.name);
  value.at("title").get_to(table.title);
  value.at("note").get_to(table.note);
  for (const Json& column : value.at("columns"))
    table.columns.push_back({column.at("name"), column.at("heading"), column.at("digits")});
  for (const Json& row : value.at("rows")) {
    auto& cells = table.rows.emplace_back();
    for (const Json& cell : row) cells.push_back(cell_of(cell));
  }
  for (const Json& chart : value.at("charts")) table.charts.push_back(chart_of(chart));
  table.check();
  return table;
}

}  // namespace

size_t Table::column(std::string_view column_name) const {
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const Column& c) { return c.name == column_name; });
  longhand::check<Error>(found != columns.end(), "table ", name, ": there is no column \"",
                         column_name, "\"");
  return static_cast<size_t>(found - columns.begin());
}

void Table::check() const {
  std::set<std::string> names;
  for (const Column& each : columns)
    longhand::check<Error>(names.insert(each.name).second, "table ", name,
                           ": two columns are named \"", each.name, "\"");
  for (const auto& row : rows)
    longhand::check<Error>(row.size() == columns.size(), "table ", name, ": expected ",
                           columns.size(), " cells in each row, got ", row.size());
  for (const Chart& chart : charts) {
    for (const std::string& each : {chart.x, chart.y}) column(each);
    for (const std::string& each : chart.series) column(each);
    for (const std::string& each : {chart.low, chart.high, chart.theory, chart.colour})
      if (!each.empty()) column(each);
  }
}

std::string to_text(const Cell& cell, int digits) {
  if (std::holds_alternative<std::monostate>(cell)) return "-";
  const auto* const number = std::get_if<double>(&cell);
  if (!number || !std::isfinite(*number)) return exact(cell);
  // Large numbers are shown to the unit, not as 1.234e+04.
  const double size = std::abs(*number);
  if (size < 1e7 && size >= std::pow(10.0, digits)) return fmt::format("{:.0f}", *number);
  return fmt::format("{:.{}g}", *number, digits);
}

std::string to_text(const Table& table) {
  std::vector<std::vector<std::string>> lines;
  auto& head = lines.emplace_back();
  for (const Column& column : table.columns) head.push_back(heading(column));
  for (const auto& row : table.rows) {
    auto& line = lines.emplace_back();
    for (size_t i = 0; i < row.size(); ++i)
      line.push_back(to_text(row[i], table.columns[i].digits));
  }
  std::vector<size_t> widths(table.columns.size());
  for (const auto& line : lines)
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], width_of(line[i]));
  const std::vector<bool> numeric = numeric_columns(table);
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string space(widths[i] - width_of(line[i]), ' ');
      text += i == 0 ? "" : "  ";
      text += numeric[i] ? space + line[i] : line[i] + space;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string to_markdown(const Table& table) {
  const std::vector<bool> numeric = numeric_columns(table);
  std::string out = "|", rule = "|";
  for (size_t i = 0; i < table.columns.size(); ++i) {
    out += fmt::format(" {} |", replaced(heading(table.columns[i]), '|', "\\|"));
    rule += numeric[i] ? " ---: |" : " --- |";
  }
  out += "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (size_t i = 0; i < row.size(); ++i)
      out += fmt::format(" {} |", replaced(to_text(row[i], table.columns[i].digits), '|', "\\|"));
    out += "\n";
  }
  return out;
}

std::string to_latex(const Table& table) {
  std::string out = "\\begin{tabular}{";
  for (const bool numeric : numeric_columns(table)) out += numeric ? "r" : "l";
  out += "}\n\\toprule\n";
  const auto line = [&](const auto& text_of) {
    for (size_t i = 0; i < table.columns.size(); ++i)
      out.append(i == 0 ? "" : " & ").append(latex(text_of(i)));
    out += " \\\\\n";
  };
  line([&](size_t i) { return heading(table.columns[i]); });
  out += "\\midrule\n";
  for (const auto& row : table.rows)
    line([&](size_t i) { return to_text(row[i], table.columns[i].digits); });
  return out + "\\bottomrule\n\\end{tabular}\n";
}

std::string to_csv(const Table& table) {
  std::string out;
  for (size_t i = 0; i < table.columns.size(); ++i)
    out.append(i == 0 ? "" : ",").append(csv_field(table.columns[i].name));
  out += "\r\n";
  for (const auto& row : table.rows) {
    for (size_t i = 0; i < row.size(); ++i)
      out.append(i == 0 ? "" : ",").append(csv_field(exact(row[i])));
    out += "\r\n";
  }
  return out;
}

const Table& Results::table(std::string_view name) const {
  const auto found =
      std::find_if(tables.begin(), tables.end(), [&](const Table& t) { return t.name == name; });
  longhand::check<Error>(found != tables.end(), kind, ": there is no table \"", name, "\"");
  return *found;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string to_json(const Results& results) {
  Json out = {{"kind", results.kind},       {"title", results.title},
              {"summary", results.summary}, {"command", results.command},
              {"machine", results.machine}, {"date", results.date},
              {"version", results.version}, {"tables", Json::array()}};
  for (const Table& table : results.tables) out["tables"].push_back(json(table));
  return out.dump(1) + "\n";
}

Results results_of_json(std::string_view text, const std::string& source) {
  try {
    const Json value = Json::parse(text);
    Results results;
    value.at("kind").get_to(results.kind);
    value.at("title").get_to(results.title);
    value.at("summary").get_to(results.summary);
    value.at("command").get_to(results.command);
    value.at("machine").get_to(results.machine);
    value.at("date").get_to(results.date);
    value.at("version").get_to(results.version);
    for (const Json& table : value.at("tables")) results.tables.push_back(table_of(table));
    return results;
  } catch (const std::exception& error) {
    throw DataError(source + ": expected results as written by Longhand: " + error.what());
  }
}

}  // namespace longhand::train

#include "longhand/train/results/table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/core/utf8.h"
#include "longhand/data/file.h"
#include "longhand/train/results/codec.h"

namespace longhand::train {

Json json_of(const Cell& cell) {
  if (const auto* const text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* const integer = std::get_if<int64_t>(&cell)) return *integer;
  if (const auto* const number = std::get_if<double>(&cell)) return json_number(*number);
  return nullptr;
}

void read_value(const Json& from, Cell& to) {
  if (from.is_null())
    to = {};
  else if (from.is_number_integer())
    to = from.get<int64_t>();
  else if (const auto number = number_in(from))
    to = *number;
  else
    to = from.get<std::string>();
}

void read_value(const Json& from, std::set<std::pair<size_t, size_t>>& to) {
  for (const Json& each : from) to.emplace(integer_in(each.at(0)), integer_in(each.at(1)));
}

void fields(Is<Table> auto& t, auto& f) {
  if (f.writes) t.check();
  f("name", t.name);
  f("title", t.title);
  f("note", t.note);
  f("columns", t.columns);
  f("rows", t.rows);
  f("charts", t.charts);
  if (f.when(!t.marked.empty())) {
    f.added("mark", t.mark);
    f.added("marked", t.marked);
  }
  f.filled("best", t.best);
  if (!f.writes) t.check();
}

void fields(Is<Results> auto& r, auto& f) {
  f("kind", r.kind);
  f("title", r.title);
  f.filled("task", r.task);
  f("summary", r.summary);
  f("command", r.command);
  f("machine", r.machine);
  f("date", r.date);
  f("version", r.version);
  f.filled("provenance", r.provenance);
  f("tables", r.tables);
}

namespace {

constexpr const char* best_note = "Bold: the best, and what seeds do not tell apart from it.";

using Printed = std::function<std::string(const std::string&)>;
/// Rows of texts: the headings, then the cells as shown, with their marks.
using Texts = std::vector<std::vector<std::string>>;
Texts texts_of(const Table& table, const Printed& escaped = std::identity(),
               const Printed& bold = std::identity()) {
  Texts out(1 + table.rows.size());
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    out[0].push_back(escaped(column.shown()));
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const std::string text = escaped(to_text(table.rows[r][i], column.digits) +
                                       (table.marked.contains({r, i}) ? "*" : ""));
      out[r + 1].push_back(table.best.contains({r, i}) ? bold(text) : text);
    }
  }
  return out;
}

/// Formats all digits: reading the text gives the same value.
std::string exact(const Cell& cell) {
  if (const auto* const text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* const integer = std::get_if<int64_t>(&cell)) return fmt::format("{}", *integer);
  if (const auto* const number = std::get_if<double>(&cell))
    return std::isfinite(*number) ? fmt::format("{}", *number) : name_of_not_finite(*number);
  return "";
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return fmt::format("\"{}\"", replaced(text, '"', "\"\""));
}

/// Characters that LaTeX does not print literally, with any engine and font encoding.
constexpr std::pair<std::string_view, std::string_view> latex_symbols[] = {
    {"\\", "\\textbackslash{}"},
    {"~", "\\textasciitilde{}"},
    {"^", "\\textasciicircum{}"},
    {"<", "\\textless{}"},
    {">", "\\textgreater{}"},
    {"|", "\\textbar{}"},
    {"&", "\\&"},
    {"%", "\\%"},
    {"$", "\\$"},
    {"#", "\\#"},
    {"_", "\\_"},
    {"{", "\\{"},
    {"}", "\\}"},
    {"±", "$\\pm$"},
    {"×", "$\\times$"},
    {"²", "$^2$"},
    {"⁺", "$^+$"},
    {"σ", "$\\sigma$"},
    {"λ", "$\\lambda$"},
    {"Σ", "$\\Sigma$"},
    {"κ", "$\\kappa$"},
    {"√", "$\\surd$"},
    {"…", "\\dots{}"},
    {"−", "$-$"},
};

std::string latex(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto found = std::ranges::find_if(latex_symbols, [&](const auto& symbol) {
      return text.compare(i, symbol.first.size(), symbol.first) == 0;
    });
    const bool is_plain = found == std::end(latex_symbols);
    const bool is_minus = text[i] == '-' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '(') &&
                          i + 1 < text.size() && '0' <= text[i + 1] && text[i + 1] <= '9';
    out += is_minus ? "$-$" : is_plain ? std::string_view(text).substr(i, 1) : found->second;
    i += is_plain ? 1 : found->first.size();
  }
  return out;
}

/// Returns the power of ten of the first digit.
int magnitude(double x) { return static_cast<int>(std::floor(std::log10(std::abs(x)))); }

/// Formats a number whose last digit has this power of ten.
std::string rounded_to(int last, double x) {
  const double unit = std::pow(10.0, last), rounded = last > 0 ? std::round(x / unit) * unit : x;
  const double size = std::abs(rounded);
  if (size < 1e7 && (size >= 1e-4 || last >= -4))
    return fmt::format("{:.{}f}", rounded, std::max(0, -last));
  return fmt::format("{:.{}e}", rounded, std::max(0, magnitude(rounded) - last));
}

/// Formats a mean with its interval.
std::string with_interval(double mean, double low, double high) {
  const double half = (high - low) / 2, below = mean - low, above = high - mean;
  constexpr double symmetric = 0.2;  // difference of the halves, relative to the interval
  const bool is_symmetric = std::abs(above - below) <= symmetric * (above + below);
  if (!(half > 0) || !std::isfinite(half))
    return fmt::format("{} ±{}", to_text(mean), to_text(half, 2));
  const int last = magnitude(half) - 1;
  return is_symmetric ? fmt::format("{} ±{}", rounded_to(last, mean), rounded_to(last, half))
                      : fmt::format("{} ({} to {})", rounded_to(last, mean), rounded_to(last, low),
                                    rounded_to(last, high));
}

std::string digest_of(const Json& value) { return data::text_digest(dump(value)); }

}  // namespace

Cell known(std::optional<double> value) {
  return value && !std::isnan(*value) ? Cell{*value} : Cell{};
}

std::optional<double> number_in(const Cell& cell) {
  if (const auto* const integer = std::get_if<int64_t>(&cell)) return static_cast<double>(*integer);
  if (const auto* const number = std::get_if<double>(&cell)) return *number;
  return std::nullopt;
}

std::optional<size_t> Table::find(std::string_view column_name) const {
  const auto found = std::ranges::find(columns, column_name, &Column::name);
  if (found == columns.end()) return std::nullopt;
  return static_cast<size_t>(found - columns.begin());
}

size_t Table::column(std::string_view column_name) const {
  const std::optional<size_t> found = find(column_name);
  longhand::check<Error>(found.has_value(), "table ", name, ": there is no column \"", column_name,
                         "\"");
  return *found;
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
    for (const std::string& each : {chart.low, chart.high, chart.theory, chart.colour, chart.end})
      if (!each.empty()) column(each);
  }
  for (const auto& [row, column] : marked)
    longhand::check<Error>(row < rows.size() && column < columns.size(), "table ", name,
                           ": there is no cell ", row, ", ", column, " to mark");
}

std::string without_interval(const std::vector<double>& accuracies) {
  const std::optional<TwoGroups> groups = two_groups(accuracies);
  if (!groups) return fmt::format("{} seeds, all equal", accuracies.size());
  const std::optional<Estimate> found = solved(accuracies);
  if (!found)
    return fmt::format("{} of {} seeds reached at least {:.2f}, the others at most {:.2f}",
                       groups->upper, groups->seeds, groups->high, groups->low);
  return fmt::format("{:.0f} of {} seeds solved it, 95 %: {:.2f} to {:.2f}",
                     found->mean * static_cast<double>(found->count), found->count, found->low,
                     found->high);
}

RowField::RowField(std::vector<Column> several, std::vector<Cell> their_cells)
    : columns(std::move(several)), cells(std::move(their_cells)) {}

RowField::RowField(std::string name, Cell cell, std::string heading, int digits) {
  columns.push_back({std::move(name), std::move(heading), digits});
  cells.push_back(std::move(cell));
}

RowField::RowField(const std::string& name, const Estimate& estimate, const std::string& heading)
    : columns{{name, heading},
              {name + "_low", heading + ", low"},
              {name + "_high", heading + ", high"}},
      cells(3) {
  if (estimate.count > 0) cells = {estimate.mean, known(estimate.low), known(estimate.high)};
}

void add_row(Table& table, std::initializer_list<RowField> fields) {
  std::vector<Cell> row;
  for (const RowField& field : fields) {
    if (table.rows.empty())
      table.columns.insert(table.columns.end(), field.columns.begin(), field.columns.end());
    row.insert(row.end(), field.cells.begin(), field.cells.end());
  }
  table.rows.push_back(std::move(row));
}

namespace {

/// Returns a table, without charts, of these columns.
Table of_columns(const Table& table, const std::vector<size_t>& columns) {
  Table out{.name = table.name, .title = table.title, .note = table.note, .mark = table.mark};
  out.rows.resize(table.rows.size());
  for (const size_t i : columns) {
    for (size_t r = 0; r < table.rows.size(); ++r) {
      out.rows[r].push_back(table.rows[r][i]);
      if (table.marked.contains({r, i})) out.marked.insert({r, out.columns.size()});
      if (table.best.contains({r, i})) out.best.insert({r, out.columns.size()});
    }
    out.columns.push_back(table.columns[i]);
  }
  return out;
}

/// Returns the columns with the ends of each estimate's interval.
std::map<std::string, std::pair<size_t, size_t>> ends_of(const Table& table) {
  std::map<std::string, std::pair<size_t, size_t>> out;
  for (const Column& column : table.columns)
    if (const auto low = table.find(column.name + "_low"), high = table.find(column.name + "_high");
        low && high)
      out[column.name] = {*low, *high};
  if (const auto low = table.find("low"), high = table.find("high"); low && high && *low > 0)
    out[table.columns[*low - 1].name] = {*low, *high};
  return out;
}

}  // namespace

void add_chart(Table& table, std::string title, const std::string& x, const std::string& y,
               std::vector<std::string> series, bool log_x, bool log_y) {
  Chart chart{.title = std::move(title),
              .x = x,
              .y = y,
              .series = std::move(series),
              .log_x = log_x,
              .log_y = log_y};
  const auto ends = ends_of(table);
  if (const auto found = ends.find(y); found != ends.end()) {
    chart.low = table.columns[found->second.first].name;
    chart.high = table.columns[found->second.second].name;
  }
  table.charts.push_back(std::move(chart));
}

void add_bars(Table& table, std::string title, const std::string& x, const std::string& y,
              std::vector<std::string> series) {
  add_chart(table, std::move(title), x, y, std::move(series));
  table.charts.back().bars = true;
}

Table without_columns(const Table& table, const std::function<bool(size_t)>& omit) {
  std::vector<size_t> kept;
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (!omit(i)) kept.push_back(i);
  return of_columns(table, kept);
}

Table with_columns(const Table& table, const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const Column& column : table.columns) known.push_back(column.name);
  std::vector<size_t> columns;
  for (const std::string& column : names) {
    const auto found = table.find(column);
    longhand::check<ConfigError>(found.has_value(), "--columns ", column, ": the table \"",
                                 table.name, "\" has no such column; expected some of ",
                                 fmt::format("{}", fmt::join(known, ",")));
    columns.push_back(*found);
  }
  return of_columns(table, columns);
}

Table with_intervals(const Table& table) {
  const auto ends = ends_of(table);
  Table out = without_columns(table, [&](size_t i) {
    return std::ranges::any_of(
        ends, [&](const auto& each) { return each.second.first == i || each.second.second == i; });
  });
  for (size_t to = 0; to < out.columns.size(); ++to) {
    const auto found = ends.find(out.columns[to].name);
    if (found == ends.end()) continue;
    for (size_t r = 0; r < table.rows.size(); ++r) {
      Cell& cell = out.rows[r][to];
      if (std::holds_alternative<std::monostate>(cell)) continue;
      const auto mean = number_in(cell), low = number_in(table.rows[r][found->second.first]),
                 high = number_in(table.rows[r][found->second.second]);
      cell = mean && low && high ? with_interval(*mean, *low, *high) : to_text(cell, 3);
    }
  }
  return out;
}

Table without_empty_columns(const Table& table) {
  return without_columns(table, [&](size_t i) {
    return std::ranges::all_of(table.rows, [&](const auto& row) {
      const auto* const text = std::get_if<std::string>(&row[i]);
      return std::holds_alternative<std::monostate>(row[i]) || (text && text->empty());
    });
  });
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

std::string counted(int64_t n, const std::string& one) {
  return with_commas(n) + " " + one + (n == 1 ? "" : "s");
}

std::string with_commas(int64_t value) {
  const std::string digits = std::to_string(value);
  const size_t sign = value < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

namespace {

/// Returns, by column, whether it holds no text and is aligned to the right.
std::vector<bool> numeric_columns(const Table& table) {
  std::vector<bool> numeric(table.columns.size(), true);
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      if (std::holds_alternative<std::string>(row[i])) numeric[i] = false;
  return numeric;
}

/// Returns the width that a column needs: of its widest cell, or of the longest word of its
/// heading, which may break between words.
size_t needed_width(const Texts& texts, size_t column) {
  size_t width = 0;
  for (const std::string& word : split_at(texts.front()[column], ' '))
    width = std::max(width, width_of(word));
  for (size_t r = 1; r < texts.size(); ++r) width = std::max(width, width_of(texts[r][column]));
  return width;
}

size_t total_width(const std::vector<size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
}

/// Formats some columns as lines, breaking cells wider than their column.
std::string lines_of(const Texts& texts, const std::vector<size_t>& columns,
                     const std::vector<size_t>& widths, const std::vector<bool>& numeric) {
  std::string out;
  for (const auto& row : texts) {
    Texts cells;
    size_t height = 1;
    for (const size_t column : columns) {
      const std::string& cell = row[column];
      cells.push_back(width_of(cell) > widths[column] ? wrapped(cell, widths[column])
                                                      : std::vector<std::string>{cell});
      height = std::max(height, cells.back().size());
    }
    for (size_t line = 0; line < height; ++line) {
      std::string text;
      for (size_t i = 0; i < columns.size(); ++i) {
        const std::string cell = line < cells[i].size() ? cells[i][line] : "";
        const std::string space(widths[columns[i]] - width_of(cell), ' ');
        text += i == 0 ? "" : "  ";
        text += numeric[columns[i]] ? space + cell : cell + space;
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
  }
  return out;
}

}  // namespace

std::string to_text(const Table& table) {
  constexpr size_t width = 100;  // terminal width
  if (table.columns.empty()) return "";
  const std::vector<bool> numeric = numeric_columns(table);
  const size_t count = table.columns.size();
  const Texts texts = texts_of(table);
  std::vector<size_t> widths(count, 0);
  for (const auto& row : texts)
    for (size_t i = 0; i < count; ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  if (total_width(widths) > width)
    for (size_t i = 0; i < count; ++i) widths[i] = needed_width(texts, i);
  // Text may be broken, but row names only if they take more than half of the line.
  const auto least = [&](size_t i) { return i == 0 ? width / 2 : 24; };
  while (total_width(widths) > width) {
    size_t widest = count;  // among those that can be broken
    for (size_t i = 0; i < count; ++i)
      if (!numeric[i] && widths[i] > least(i) && (widest == count || widths[i] > widths[widest]))
        widest = i;
    if (widest == count) break;
    --widths[widest];
  }

  // Columns that do not fit follow below, again with the columns that identify a row: the first
  // ones, or only the variant if it is not among them.
  std::vector<size_t> first = {0};
  size_t taken = widths[0];
  for (size_t i = 1; i < count && !numeric[i] && taken + widths[i] + 2 <= width / 2; ++i) {
    first.push_back(i);
    taken += widths[i] + 2;
  }
  const auto variant = table.find("variant");
  if (variant && *variant >= first.size() && total_width(widths) > width) {
    first = {*variant};
    taken = widths[*variant];
  }
  std::string out;
  std::vector<size_t> block = first;
  size_t used = taken;
  // Blocks below omit rows without a value, such as those without a reason for a failure.
  const auto shown = [&](const std::vector<size_t>& columns) {
    Texts rows = texts;
    const auto says_nothing = [&](const std::vector<std::string>& row) {
      return std::all_of(columns.begin() + std::ssize(first), columns.end(),
                         [&](size_t i) { return row[i].empty() || row[i] == "-"; });
    };
    if (!out.empty())
      rows.erase(std::remove_if(rows.begin() + 1, rows.end(), says_nothing), rows.end());
    return rows;
  };
  for (size_t i = 0; i < count; ++i) {
    if (std::ranges::find(first, i) != first.end()) continue;
    if (used + widths[i] + 2 > width && block.size() > first.size()) {
      out += lines_of(shown(block), block, widths, numeric) + "\n";
      block = first;
      used = taken;
    }
    block.push_back(i);
    used += widths[i] + 2;
  }
  out += lines_of(shown(block), block, widths, numeric);
  if (!table.marked.empty()) out += "* " + table.mark + "\n";
  return out;
}

std::string to_markdown(const Table& table) {
  const Texts texts = texts_of(
      table,
      [](const std::string& text) { return replaced(replaced(text, '|', "\\|"), '*', "\\*"); },
      [](const std::string& text) { return "**" + text + "**"; });
  std::string rule = "|";
  for (const bool numeric : numeric_columns(table)) rule += numeric ? " ---: |" : " --- |";
  std::string out;
  for (size_t r = 0; r < texts.size(); ++r)
    out += fmt::format("| {} |\n{}", fmt::join(texts[r], " | "), r == 0 ? rule + "\n" : "");
  if (!table.marked.empty()) out += "\n\\* " + table.mark + "\n";
  if (!table.best.empty()) out.append("\n").append(best_note).append("\n");
  return out;
}

std::string to_latex(const Table& table, const std::string& caption, const std::string& label) {
  const bool floats = !caption.empty() || !label.empty();
  std::string out;
  if (floats) out += "% \\usepackage{booktabs}\n\\begin{table}\n\\centering\n";
  if (floats)
    out += fmt::format("\\caption{{{}{}{}}}\n", latex(caption), table.best.empty() ? "" : " ",
                       table.best.empty() ? "" : best_note);
  if (!label.empty()) out += "\\label{" + label + "}\n";
  out += "\\begin{tabular}{";
  for (const bool numeric : numeric_columns(table)) out += numeric ? "r" : "l";
  out += "}\n\\toprule\n";
  const Texts texts =
      texts_of(table, latex, [](const std::string& text) { return "\\textbf{" + text + "}"; });
  for (size_t r = 0; r < texts.size(); ++r) {
    // After the end of a row, a bracket or an asterisk would be taken as an argument.
    if (texts[r].front().starts_with('[') || texts[r].front().starts_with('*')) out += "{}";
    out += fmt::format("{} \\\\\n{}", fmt::join(texts[r], " & "), r == 0 ? "\\midrule\n" : "");
  }
  out += "\\bottomrule\n";
  if (!table.marked.empty())
    out += fmt::format("\\multicolumn{{{}}}{{l}}{{* {}}} \\\\\n", table.columns.size(),
                       latex(table.mark));
  return out + "\\end{tabular}\n" + (floats ? "\\end{table}\n" : "");
}

std::string to_csv(const Table& table) {
  std::set<size_t> with_marks;
  for (const auto& [row, column] : table.marked) with_marks.insert(column);
  std::string out;
  const auto line = [&](const auto& text_of, const auto& mark_of) {
    for (size_t i = 0; i < table.columns.size(); ++i) {
      out.append(i == 0 ? "" : ",").append(csv_field(text_of(i)));
      if (with_marks.contains(i)) out.append(",").append(csv_field(mark_of(i)));
    }
    out += "\r\n";
  };
  line([&](size_t i) { return table.columns[i].name; },
       [&](size_t i) { return table.columns[i].name + "_mark"; });
  for (size_t r = 0; r < table.rows.size(); ++r)
    line([&](size_t i) { return exact(table.rows[r][i]); },
         [&](size_t i) {
           return table.marked.contains({r, i}) ? "*" : "";
         });
  return out;
}

void check_format(std::string_view format) {
  for (const char* const known : {"md", "csv", "tex", "text"})
    if (format == known) return;
  throw ConfigError(
      concat_message("--table ", format, ": unknown format; expected md, csv, tex or text"));
}

std::string to_format(std::string_view format, const Table& all, const Table& readable,
                      const TableStyle& style) {
  check_format(format);
  const bool chosen = !style.columns.empty();
  if (format == "csv") return to_csv(chosen ? with_columns(all, style.columns) : all);
  const Table table = chosen ? with_columns(with_intervals(all), style.columns) : readable;
  if (format == "md") return to_markdown(table);
  return format == "tex" ? to_latex(table, style.caption, style.label) : to_text(table);
}

const Table& Results::table(std::string_view name) const {
  const auto found = std::ranges::find(tables, name, &Table::name);
  longhand::check<Error>(found != tables.end(), kind, ": there is no table \"", name, "\"");
  return *found;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string to_json(const Results& results) {
  Json out = json_of(results);
  out["digest"] = digest_of(out);
  return dump(out, 1) + "\n";
}

Results results_of_json(std::string_view text, const std::string& source) {
  try {
    Json value = parse_json(text);
    // Earlier versions wrote none.
    if (const auto digest = value.find("digest"); digest != value.end()) {
      const Json written = *digest;
      value.erase("digest");
      check<DataError>(written == digest_of(value),
                       "the file is damaged, or was changed without removing its \"digest\"");
    }
    return read_json<Strict, Results>(value);
  } catch (const std::exception& error) {
    throw DataError(source + ": expected results as written by Longhand: " + plain_message(error) +
                    "; repeat the command that wrote it, for a sweep longhand ablate DIR");
  }
}

}  // namespace longhand::train

// Tables of results: for a terminal, a paper, a spreadsheet, and a report that draws them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "longhand/core/statistics.h"

namespace longhand::train {

/// A value of a table; monostate: not available.
using Cell = std::variant<std::monostate, int64_t, double, std::string>;

/// A number; not available if it is NaN or unknown.
Cell known(std::optional<double> value);
/// The number in a cell; nothing for text, and if it is not available.
std::optional<double> number_in(const Cell& cell);

struct Column {
  std::string name;     // in snake_case, unique within its table
  std::string heading;  // with its unit: "peak memory (MiB)"; empty: the name
  int digits = 4;       // significant digits of numbers shown; CSV and JSON hold all of them

  const std::string& shown() const { return heading.empty() ? name : heading; }
};

/// How a report draws a table: y against x, one curve for each value of the columns `series`.
/// Columns are named by Column::name.
struct Chart {
  std::string title;
  std::string x, y;
  std::vector<std::string> series{};
  std::string low{}, high{};  // columns with the ends of an interval around y; empty: none
  bool log_x = false, log_y = false;
  bool bars = false;  // x holds categories; otherwise it holds numbers
  /// A column with what theory predicts for y, drawn as a dotted line; empty: none.
  std::string theory{};
  /// If not empty, a heat map for each value of the columns `series`: x and y hold the integers that
  /// number columns and rows, and this column the value shown as a colour.
  std::string colour{};
  /// If not empty, a timeline: a lane for each value of y, which holds text, with spans from x to this
  /// column.
  std::string end{};
};

/// One table, with the charts that show it. Every row has one cell per column.
struct Table {
  std::string name;     // in snake_case, unique within its analysis
  std::string title{};  // one line
  std::string note{};   // sentences for the reader: what was measured, and what to expect
  std::vector<Column> columns{};
  std::vector<std::vector<Cell>> rows{};
  std::vector<Chart> charts{};
  /// What an asterisk after a value means, and which cells (row, column) have one. In CSV a column with
  /// marks is followed by one of them, NAME_mark.
  std::string mark{};
  std::set<std::pair<size_t, size_t>> marked{};
  /// The cells (row, column) of the best, which Markdown and LaTeX print in bold: several where they may be
  /// equal.
  std::set<std::pair<size_t, size_t>> best{};

  /// The index of a column. Throws Error if there is none of this name.
  size_t column(std::string_view column_name) const;
  /// The same; nothing if there is none.
  std::optional<size_t> find(std::string_view column_name) const;
  /// Throws Error, naming the table, unless rows have one cell per column, the charts name columns
  /// and marks are of cells.
  void check() const;
};

/// What is said of accuracies of several seeds whose mean has no interval: "2 of 3 seeds solved it, 95 %: 0.21
/// to 0.94", or "3 seeds, all equal".
std::string without_interval(const std::vector<double>& accuracies);

/// A column and its cell in a row, or several. Rows describe columns and cells together: the first row of a
/// table gives it its columns.
struct RowField {
  RowField() = default;  // none
  RowField(std::vector<Column> several, std::vector<Cell> their_cells);
  RowField(std::string name, Cell cell, std::string heading = "", int digits = 4);
  /// NAME, NAME_low and NAME_high. An interval that is not known is not available, nor is an estimate without
  /// values.
  RowField(const std::string& name, const Estimate& estimate, const std::string& heading);

  std::vector<Column> columns{};
  std::vector<Cell> cells{};
};

/// Adds a row.
void add_row(Table& table, std::initializer_list<RowField> fields);

/// A chart of y against x, with its interval if the table has the ends of one, as with_intervals()
/// finds them.
void add_chart(Table& table, std::string title, const std::string& x, const std::string& y,
               std::vector<std::string> series, bool log_x = false, bool log_y = false);
/// The same as bars, one for each of the categories of x.
void add_bars(Table& table, std::string title, const std::string& x, const std::string& y,
              std::vector<std::string> series = {});

/// A table for readers, without charts: an estimate is one column, "0.50 ±0.10", or "0.990 (0.900 to 1.000)"
/// where its interval is not symmetric, with the digits that two of half the interval justify. Its ends are
/// the columns NAME_low and NAME_high, or those named low and high behind it.
Table with_intervals(const Table& table);
/// A table, without charts, of the columns with these names, in their order. Throws ConfigError for a name
/// that it has not, with those that it has.
Table with_columns(const Table& table, const std::vector<std::string>& names);
/// A table, without charts, without the columns that `omit` selects.
Table without_columns(const Table& table, const std::function<bool(size_t)>& omit);
/// The same without columns that have no value, or only empty text.
Table without_empty_columns(const Table& table);

/// A value as it is shown: `digits` significant digits, "-" if not available, "NaN".
std::string to_text(const Cell& cell, int digits = 4);

/// "12,345,678"
std::string with_commas(int64_t value);
/// "1 thread", "2 threads"
std::string counted(int64_t n, const std::string& one);

/// Aligned columns for a terminal of 100 columns, numbers to the right, without title and note. What
/// is wider is broken: headings and text between words, and the table into tables below each other that
/// begin with the same columns, "variant" among them.
std::string to_text(const Table& table);
/// A Markdown table.
std::string to_markdown(const Table& table);
/// A LaTeX tabular (booktabs), with special characters escaped; with a caption or a label, in a table.
std::string to_latex(const Table& table, const std::string& caption = "",
                     const std::string& label = "");
/// Comma-separated values (RFC 4180) under the names of the columns, with all digits.
std::string to_csv(const Table& table);

/// What is printed of a table, and around it.
struct TableStyle {
  std::vector<std::string> columns{};  // by name; empty: those of `readable`, in CSV all
  std::string caption{}, label{};      // of LaTeX
};
/// A table in one of the formats md, tex, text, of `readable`, or csv, of `all`. Throws ConfigError for
/// another format, and as with_columns().
std::string to_format(std::string_view format, const Table& all, const Table& readable,
                      const TableStyle& style = {});
/// Throws ConfigError unless to_format() knows the format.
void check_format(std::string_view format);

/// The result of an analysis or of a sweep: tables, and where they are from.
struct Results {
  std::string kind{};                               // "analyse error", "bench", "ablate"
  std::string title{};                              // one line
  std::string summary{};                            // what the tables show, in one or two sentences
  std::string command{};                            // that repeats it
  std::string machine{};                            // CPU, cores and threads
  std::string date{};                               // ISO 8601, UTC
  std::string version{};                            // of Longhand
  std::map<std::string, std::string> provenance{};  // of the process: see provenance()
  std::vector<Table> tables{};

  /// The table of this name. Throws Error if there is none.
  const Table& table(std::string_view name) const;
};

/// The current time for Results::date, such as "2026-01-31T12:00:00Z".
std::string utc_now();

/// Results as JSON, which results_of_json() reads back. Numbers that are not finite are the strings
/// "NaN", "Infinity" and "-Infinity" (so these are not available as text).
std::string to_json(const Results& results);
/// Throws DataError, naming `source`, for text that to_json() has not written.
Results results_of_json(std::string_view text, const std::string& source);

}  // namespace longhand::train

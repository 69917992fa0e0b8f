// Tables of results: for a terminal, a paper, a spreadsheet, and reports that plot them.
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

/// Returns a number as a cell; not available if it is NaN or unknown.
Cell known(std::optional<double> value);
/// Returns the number in a cell; nothing for text or if it is not available.
std::optional<double> number_in(const Cell& cell);

struct Column {
  std::string name;     // in snake_case, unique within its table
  std::string heading;  // with unit: "peak memory (MiB)"; empty: the name
  int digits = 4;       // significant digits of numbers shown; CSV and JSON hold all of them

  const std::string& shown() const { return heading.empty() ? name : heading; }
};

/// How a report draws a table: y against x, one curve per value of the columns `series`. Columns
/// are named by Column::name.
struct Chart {
  std::string title;
  std::string x, y;
  std::vector<std::string> series{};
  std::string low{}, high{};  // columns with the ends of y's interval; empty: none
  bool log_x = false, log_y = false;
  bool bars = false;  // x holds categories; otherwise it holds numbers
  /// A column with the theoretical prediction for y, drawn as a dotted line; empty: none.
  std::string theory{};
  /// If not empty, draws a heat map per value of the columns `series`: x and y hold the integer
  /// indices of columns and rows, and this column the value shown as a colour.
  std::string colour{};
  /// If not empty, draws a timeline: one lane per value of y, which holds text, with spans from x
  /// to this column.
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
  /// The meaning of an asterisk after a value, and the cells (row, column) that have one. In CSV, a
  /// column with marks is followed by a column NAME_mark.
  std::string mark{};
  std::set<std::pair<size_t, size_t>> marked{};
  /// The cells (row, column) of the best results, printed in bold in Markdown and LaTeX: several if
  /// they may be equal.
  std::set<std::pair<size_t, size_t>> best{};

  /// Returns the index of a column. Throws Error if no column has this name.
  size_t column(std::string_view column_name) const;
  /// Likewise; returns nothing if there is none.
  std::optional<size_t> find(std::string_view column_name) const;
  /// Throws Error, naming the table, unless rows have one cell per column, the charts name columns
  /// and marks refer to cells.
  void check() const;
};

/// Describes accuracies of several seeds whose mean has no interval: "2 of 3 seeds solved it, 95 %:
/// 0.21 to 0.94", or "3 seeds, all equal".
std::string without_interval(const std::vector<double>& accuracies);

/// A column and its cell in a row, or several of them. Rows describe columns and cells together:
/// the first row of a table defines its columns.
struct RowField {
  RowField() = default;  // none
  RowField(std::vector<Column> several, std::vector<Cell> their_cells);
  RowField(std::string name, Cell cell, std::string heading = "", int digits = 4);
  /// NAME, NAME_low and NAME_high. Unknown intervals are not available, nor are estimates without
  /// values.
  RowField(const std::string& name, const Estimate& estimate, const std::string& heading);

  std::vector<Column> columns{};
  std::vector<Cell> cells{};
};

/// Adds a row.
void add_row(Table& table, std::initializer_list<RowField> fields);

/// Adds a chart of y against x, with its interval if the table has the ends of one, as
/// with_intervals() finds them.
void add_chart(Table& table, std::string title, const std::string& x, const std::string& y,
               std::vector<std::string> series, bool log_x = false, bool log_y = false);
/// Likewise as bars, one per category of x.
void add_bars(Table& table, std::string title, const std::string& x, const std::string& y,
              std::vector<std::string> series = {});

/// Returns a table for readers, without charts: an estimate is one column, "0.50 ±0.10", or "0.990
/// (0.900 to 1.000)" if its interval is asymmetric, to two significant digits of half the interval.
/// Its ends are the columns NAME_low and NAME_high, or columns named low and high after it.
Table with_intervals(const Table& table);
/// Returns a table without charts that has the columns with these names, in this order. Throws
/// ConfigError for an unknown name, listing the known ones.
Table with_columns(const Table& table, const std::vector<std::string>& names);
/// Returns a table without charts and without the columns that `omit` selects.
Table without_columns(const Table& table, const std::function<bool(size_t)>& omit);
/// Likewise without columns that hold no value, or only empty text.
Table without_empty_columns(const Table& table);

/// Formats a value: `digits` significant digits, "-" if not available, "NaN".
std::string to_text(const Cell& cell, int digits = 4);

/// Returns text such as "12,345,678".
std::string with_commas(int64_t value);
/// Returns text such as "1 thread" or "2 threads".
std::string counted(int64_t n, const std::string& one);

/// Aligns columns for a terminal 100 columns wide, numbers to the right, without title and note.
/// Wider headings and text break between words; wider tables become several, one below the other,
/// that begin with the same columns, including "variant".
std::string to_text(const Table& table);
/// Returns a Markdown table.
std::string to_markdown(const Table& table);
/// Returns a LaTeX tabular (booktabs), escaped; with a caption or a label, inside a table.
std::string to_latex(const Table& table, const std::string& caption = "",
                     const std::string& label = "");
/// Returns comma-separated values (RFC 4180) under the column names, with all digits.
std::string to_csv(const Table& table);

/// What to print of a table, and around it.
struct TableStyle {
  std::vector<std::string> columns{};  // by name; empty: those of `readable`, or all in CSV
  std::string caption{}, label{};      // for LaTeX
};
/// Formats a table as md, tex or text, from `readable`, or as csv, from `all`. Throws ConfigError
/// for another format, and as with_columns().
std::string to_format(std::string_view format, const Table& all, const Table& readable,
                      const TableStyle& style = {});
/// Throws ConfigError unless to_format() knows the format.
void check_format(std::string_view format);

/// The results of an analysis or a sweep: tables and their origin.
struct Results {
  std::string kind{};                               // "analyse error", "bench", "ablate"
  std::string title{};                              // one line
  std::string task{};                               // data.task, if a sweep has only one
  std::string summary{};                            // what the tables show, in one or two sentences
  std::string command{};                            // command that repeats it
  std::string machine{};                            // CPU, cores and threads
  std::string date{};                               // ISO 8601, UTC
  std::string version{};                            // Longhand's version
  std::map<std::string, std::string> provenance{};  // of the process: see provenance()
  std::vector<Table> tables{};

  /// Returns the table with this name. Throws Error if there is none.
  const Table& table(std::string_view name) const;
};

/// Returns the current time for Results::date, such as "2026-01-31T12:00:00Z".
std::string utc_now();

/// Returns results as JSON, which results_of_json() reads back. Non-finite numbers become the
/// strings "NaN", "Infinity" and "-Infinity" (which are therefore not available as text).
std::string to_json(const Results& results);
/// Throws DataError, naming `source`, for text that to_json() did not write.
Results results_of_json(std::string_view text, const std::string& source);

}  // namespace longhand::train

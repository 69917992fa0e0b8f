// Columns and charts of tables with one row for each combination of a grid.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// The name of the column of a key: attention_k for "attention.k".
std::string column_name(std::string key);
/// Whether a column holds an option: "data.count", as data_count; a sweep is one, too.
bool is_key(const Column& column);

/// The number of a cell; NaN without one, and without a column.
double value_at(const Table& table, size_t row, std::optional<size_t> column);
/// The text of a cell; empty if it is not available, and without a column.
std::string text_at(const Table& table, size_t row, std::optional<size_t> column);

/// With a capital letter at its begin.
std::string capital(std::string text);

/// "a, b and c", or "a, b, c, d and 4 more"
std::string listed(const std::vector<std::string>& names);

/// The place of a name in a list, to which it is added if it is new.
size_t index_in(std::vector<std::string>& names, const std::string& name);

/// The cell of an option: numbers as such, anything else as `text`.
Cell option_cell(const OptionValue& value, const std::string& text);
/// The columns of the axes' keys, and their cells in a row with these values; those of keys without a
/// value are not available.
RowField key_fields(const std::vector<std::string>& keys, const Settings& values);
/// The columns NAME, low and high of a score with its 95 % interval, which a reader sees as one.
RowField score_fields(const std::string& name, const Estimate& score, const std::string& heading);

/// A chart of y against the column x, "TITLE against X", with a logarithmic axis where that is
/// easier to read, if x holds at least two different numbers and nothing else.
void add_chart_against(Table& table, const std::string& title, const std::string& x,
                       const std::string& y, std::vector<std::string> series);

/// The columns of all keys but one: the curves of a chart against that one.
std::vector<std::string> columns_beside(const std::string& key,
                                        const std::vector<std::string>& keys);
/// One for each key with numbers, with a curve for each value of the other keys.
void add_charts_against_keys(Table& table, const std::string& title,
                             const std::vector<std::string>& keys, const std::string& y);

}  // namespace longhand::train

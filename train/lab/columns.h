// Columns and charts of tables with one row per combination of a grid.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// Returns the column name of a key: attention_k for "attention.k".
std::string column_name(std::string key);
/// Returns whether a column holds an option, "data.count" as data_count, or is named "sweep".
bool is_key(const Column& column);

/// Returns the number in a cell; NaN if the cell has none or the column is missing.
double value_at(const Table& table, size_t row, std::optional<size_t> column);
/// Returns the text in a cell; empty if it is not available or the column is missing.
std::string text_at(const Table& table, size_t row, std::optional<size_t> column);

/// Capitalises the first letter.
std::string capital(std::string text);

/// Returns "a, b and c", or "a, b, c, d and 4 more".
std::string listed(const std::vector<std::string>& names);

/// Returns the index of a name in a list, adding it if it is new.
size_t index_in(std::vector<std::string>& names, const std::string& name);

/// Returns the cell of an option: numbers as such, anything else as `text`.
Cell option_cell(const OptionValue& value, const std::string& text);
/// Returns the columns of the axes' keys and their cells in a row with these values; keys without a
/// value are not available.
RowField key_fields(const std::vector<std::string>& keys, const Settings& values);
/// Returns the columns NAME, low and high of a score with its 95 % interval, shown as one.
RowField score_fields(const std::string& name, const Estimate& score, const std::string& heading);

/// Adds a chart of y against the column x, "TITLE against X", with a logarithmic axis where that is
/// easier to read, if x holds at least two different numbers and nothing else.
void add_chart_against(Table& table, const std::string& title, const std::string& x,
                       const std::string& y, std::vector<std::string> series);

/// Returns the columns of all keys but one: the curves of a chart against that key.
std::vector<std::string> columns_beside(const std::string& key,
                                        const std::vector<std::string>& keys);
/// Adds a chart for each key with numbers, with a curve per combination of the other keys' values.
void add_charts_against_keys(Table& table, const std::string& title,
                             const std::vector<std::string>& keys, const std::string& y);

}  // namespace longhand::train

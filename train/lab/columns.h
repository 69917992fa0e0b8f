// Columns and charts of tables with one row for each combination of a grid.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/rows.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// The name of the column of a key: attention_k for "attention.k".
std::string column_name(std::string key);
/// The cell of an option: numbers as such, anything else as `text`.
Cell option_cell(const OptionValue& value, const std::string& text);
/// The columns of the axes' keys, and their cells in a row with these values; those of keys without a
/// value are not available.
RowField key_fields(const std::vector<std::string>& keys, const Settings& values);

/// The different finite numbers in a column; none if it holds text.
std::set<double> numbers_in(const Table& table, const std::string& column);

/// What charts of such a table show: a column and its interval.
struct Charted {
  std::string title;  // "Test accuracy"
  std::string y, low, high;
};
/// A chart against the column x, with a logarithmic axis where that is easier to read, if x holds at
/// least two different numbers and nothing else.
void add_chart_against(const std::string& x, const std::vector<std::string>& series,
                       const Charted& charted, Table& table);
/// The columns of all keys but one: the curves of a chart against that one.
std::vector<std::string> columns_beside(const std::string& key,
                                        const std::vector<std::string>& keys);
/// One for each key with numbers, with a curve for each value of the other keys.
void add_charts_against_keys(const std::vector<std::string>& keys, const Charted& charted,
                             Table& table);

}  // namespace longhand::train

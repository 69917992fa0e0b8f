// Columns and charts of tables with one row for each combination of a grid.
#pragma once

#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// The columns of the axes' keys: "attention.k" is named attention_k.
std::vector<Column> key_columns(const std::vector<std::string>& keys);
/// Their cells; those of keys without a value are not available.
std::vector<Cell> key_cells(const std::vector<std::string>& keys, const Settings& values);

/// What charts of such a table show: a column and its interval.
struct Charted {
  std::string title;  // "Test accuracy"
  std::string y, low, high;
};
/// A chart against the column x, with a logarithmic axis where that is easier to read, if x holds at
/// least two different numbers and nothing else.
void add_chart_against(const std::string& x, const std::vector<std::string>& series,
                       const Charted& charted, Table& table);
/// One for each key with numbers, with a curve for each value of the other keys.
void add_charts_against_keys(const std::vector<std::string>& keys, const Charted& charted,
                             Table& table);

}  // namespace longhand::train

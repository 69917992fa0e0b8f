// Rows of a table whose columns and cells are described together: the first row gives the columns.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "longhand/train/results/table.h"

namespace longhand::train {

/// A column and its cell, or several, such as the three columns of an estimate.
struct RowField {
  RowField() = default;  // none
  RowField(std::vector<Column> several, std::vector<Cell> their_cells);
  RowField(std::string name, Cell cell, std::string heading = "", int digits = 4);
  RowField(const std::string& name, const Estimate& estimate, const std::string& heading);

  std::vector<Column> columns{};
  std::vector<Cell> cells{};
};

/// Adds a row.
void add_row(Table& table, std::initializer_list<RowField> fields);
/// The same behind cells of the columns that the table has before its first row.
void add_row(Table& table, std::vector<Cell> first, std::initializer_list<RowField> fields);

/// A chart of y against x with the interval y_low to y_high, if the table has these columns.
void add_chart(Table& table, std::string title, const std::string& x, const std::string& y,
               std::vector<std::string> series, bool log_x = false, bool log_y = false);

}  // namespace longhand::train

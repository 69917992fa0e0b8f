// Rows of a table whose columns and cells are described together: the first row gives the columns.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "longhand/train/results/table.h"

namespace longhand::train {

/// A column and its cell, or several, such as the three columns of an estimate.
struct RowField {
  RowField() = default;  // none
  RowField(std::string name, Cell cell, std::string heading = "", int digits = 4)
      : columns{{std::move(name), std::move(heading), digits}}, cells{std::move(cell)} {}
  RowField(std::vector<Column> columns_, std::vector<Cell> cells_)
      : columns(std::move(columns_)), cells(std::move(cells_)) {}
  RowField(const std::string& name, const Estimate& estimate, const std::string& heading) {
    add_estimate(columns, name, heading);
    add_estimate(cells, estimate);
  }

  std::vector<Column> columns{};
  std::vector<Cell> cells{};
};

/// Adds a row: the cells of the columns that the table has before its first row, then these.
inline void add_row(Table& table, std::vector<Cell> first, std::initializer_list<RowField> fields) {
  for (const RowField& field : fields) {
    if (table.rows.empty())
      table.columns.insert(table.columns.end(), field.columns.begin(), field.columns.end());
    first.insert(first.end(), field.cells.begin(), field.cells.end());
  }
  table.rows.push_back(std::move(first));
}

/// A chart of y against x with the interval y_low to y_high, if the table has these columns.
inline void add_chart(Table& table, std::string title, const std::string& x, const std::string& y,
                      std::vector<std::string> series, bool log_x = false, bool log_y = false) {
  const bool has_interval = table.find(y + "_low").has_value();
  table.charts.push_back({.title = std::move(title),
                          .x = x,
                          .y = y,
                          .series = std::move(series),
                          .low = has_interval ? y + "_low" : "",
                          .high = has_interval ? y + "_high" : "",
                          .log_x = log_x,
                          .log_y = log_y});
}

}  // namespace longhand::train

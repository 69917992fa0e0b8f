#include "longhand/train/lab/columns.h"

#include <algorithm>
#include <set>

namespace longhand::train {
namespace {

std::string column_name(const std::string& key) {
  std::string name = key;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

Cell cell_of(const OptionValue& value) {
  if (const auto* const i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* const d = std::get_if<double>(&value)) return *d;
  return plain_text(value);
}

/// The different numbers in a column; none if it holds anything else.
std::set<double> numbers_in(const Table& table, size_t column) {
  std::set<double> numbers;
  for (const auto& row : table.rows) {
    if (const auto* const i = std::get_if<int64_t>(&row[column]))
      numbers.insert(static_cast<double>(*i));
    else if (const auto* const d = std::get_if<double>(&row[column]))
      numbers.insert(*d);
    else if (std::holds_alternative<std::string>(row[column]))
      return {};
  }
  return numbers;
}

}  // namespace

std::vector<Column> key_columns(const std::vector<std::string>& keys) {
  std::vector<Column> columns;
  for (const std::string& key : keys) columns.push_back({column_name(key), key});
  return columns;
}

std::vector<Cell> key_cells(const std::vector<std::string>& keys, const Settings& values) {
  std::vector<Cell> cells(keys.size());
  for (size_t i = 0; i < keys.size(); ++i)
    for (const Setting& setting : values)
      if (setting.key == keys[i]) cells[i] = cell_of(setting.value);
  return cells;
}

void add_chart_against(const std::string& x, const std::vector<std::string>& series,
                       const Charted& charted, Table& table) {
  constexpr double decade = 8;  // ratio from which a logarithmic axis is easier to read
  const Column& column = table.columns[table.column(x)];
  const std::set<double> numbers = numbers_in(table, table.column(x));
  if (numbers.size() < 2) return;
  const double low = *numbers.begin(), high = *numbers.rbegin();
  table.charts.push_back({.title = charted.title + " against " +
                                   (column.heading.empty() ? column.name : column.heading),
                          .x = x,
                          .y = charted.y,
                          .series = series,
                          .low = charted.low,
                          .high = charted.high,
                          .log_x = low > 0 && high / low >= decade});
}

void add_charts_against_keys(const std::vector<std::string>& keys, const Charted& charted,
                             Table& table) {
  for (const std::string& key : keys) {
    std::vector<std::string> series;
    for (const std::string& other : keys)
      if (other != key) series.push_back(column_name(other));
    add_chart_against(column_name(key), series, charted, table);
  }
}

}  // namespace longhand::train

#include "longhand/train/lab/columns.h"

#include <algorithm>
#include <cmath>

namespace longhand::train {

std::string column_name(std::string key) {
  std::ranges::replace(key, '.', '_');
  return key;
}

Cell option_cell(const OptionValue& value, const std::string& text) {
  if (const auto* const i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* const d = std::get_if<double>(&value)) return *d;
  return text;
}

RowField key_fields(const std::vector<std::string>& keys, const Settings& values) {
  RowField out;
  for (const std::string& key : keys) {
    out.columns.push_back({column_name(key), key});
    const auto found = std::ranges::find(values, key, &Setting::key);
    out.cells.push_back(
        found == values.end() ? Cell{} : option_cell(found->value, plain_text(found->value)));
  }
  return out;
}

std::set<double> numbers_in(const Table& table, const std::string& column) {
  std::set<double> numbers;
  for (const auto& row : table.rows) {
    const Cell& cell = row[table.column(column)];
    if (std::holds_alternative<std::string>(cell)) return {};
    if (const auto number = number_in(cell); number && std::isfinite(*number))
      numbers.insert(*number);
  }
  return numbers;
}

void add_chart_against(const std::string& x, const std::vector<std::string>& series,
                       const Charted& charted, Table& table) {
  constexpr double decade = 8;  // ratio from which a logarithmic axis is easier to read
  const std::set<double> numbers = numbers_in(table, x);
  if (numbers.size() < 2) return;
  const double low = *numbers.begin(), high = *numbers.rbegin();
  table.charts.push_back(
      {.title = charted.title + " against " + table.columns[table.column(x)].shown(),
       .x = x,
       .y = charted.y,
       .series = series,
       .low = charted.low,
       .high = charted.high,
       .log_x = low > 0 && high / low >= decade});
}

std::vector<std::string> columns_beside(const std::string& key,
                                        const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const std::string& other : keys)
    if (other != key) out.push_back(column_name(other));
  return out;
}

void add_charts_against_keys(const std::vector<std::string>& keys, const Charted& charted,
                             Table& table) {
  for (const std::string& key : keys)
    add_chart_against(column_name(key), columns_beside(key, keys), charted, table);
}

}  // namespace longhand::train

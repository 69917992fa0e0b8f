#include "longhand/train/lab/columns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <span>

namespace longhand::train {

std::string column_name(std::string key) {
  std::ranges::replace(key, '.', '_');
  return key;
}

bool is_key(const Column& column) {
  if (column.name == "sweep") return true;
  return column.name != column.heading && column.heading.find('.') != std::string::npos &&
         column.name == column_name(column.heading);
}

double value_at(const Table& table, size_t row, std::optional<size_t> column) {
  return column ? number_in(table.rows[row][*column]).value_or(std::nan("")) : std::nan("");
}
std::string text_at(const Table& table, size_t row, std::optional<size_t> column) {
  if (!column || std::holds_alternative<std::monostate>(table.rows[row][*column])) return "";
  return to_text(table.rows[row][*column]);
}

std::string capital(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t most = 4;
  if (names.size() == 1) return names[0];
  if (names.size() > most + 1)
    return fmt::format("{} and {} more", fmt::join(std::span(names).first(most), ", "),
                       names.size() - most);
  return fmt::format("{} and {}", fmt::join(std::span(names).first(names.size() - 1), ", "),
                     names.back());
}

size_t index_in(std::vector<std::string>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return static_cast<size_t>(found - names.begin());
  names.push_back(name);
  return names.size() - 1;
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

RowField score_fields(const std::string& name, const Estimate& score, const std::string& heading) {
  return {{{name, heading}, {"low", "95 % from"}, {"high", "to"}},
          {known(score.mean), known(score.low), known(score.high)}};
}

void add_chart_against(Table& table, const std::string& title, const std::string& x,
                       const std::string& y, std::vector<std::string> series) {
  constexpr double decade = 8;  // ratio from which a logarithmic axis is easier to read
  std::set<double> numbers;
  for (const auto& row : table.rows) {
    const Cell& cell = row[table.column(x)];
    if (std::holds_alternative<std::string>(cell)) return;
    if (const auto number = number_in(cell); number && std::isfinite(*number))
      numbers.insert(*number);
  }
  if (numbers.size() < 2) return;
  const double low = *numbers.begin(), high = *numbers.rbegin();
  add_chart(table, title + " against " + table.columns[table.column(x)].shown(), x, y,
            std::move(series), low > 0 && high / low >= decade);
}

std::vector<std::string> columns_beside(const std::string& key,
                                        const std::vector<std::string>& keys) {
  std::vector<std::string> out;
  for (const std::string& other : keys)
    if (other != key) out.push_back(column_name(other));
  return out;
}

void add_charts_against_keys(Table& table, const std::string& title,
                             const std::vector<std::string>& keys, const std::string& y) {
  for (const std::string& key : keys)
    add_chart_against(table, title, column_name(key), y, columns_beside(key, keys));
}

}  // namespace longhand::train

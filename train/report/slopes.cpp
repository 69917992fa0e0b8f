#include "longhand/train/report/slopes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "longhand/core/statistics.h"

namespace longhand::train {
namespace {

struct Sum {
  double y = 0;
  int64_t count = 0;
};
using Points = std::map<double, Sum>;  // rows with the same x are averaged

std::optional<double> positive(const Cell& cell) {
  double value = 0;
  if (const auto* const i = std::get_if<int64_t>(&cell)) value = static_cast<double>(*i);
  if (const auto* const d = std::get_if<double>(&cell)) value = *d;
  return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

/// The smallest x from which a is below b, having been above it before; interpolated between the
/// logarithms of the points that both have.
std::optional<double> crossing(const Points& a, const Points& b) {
  double last_x = 0, last = 0;
  for (const auto& [x, sum] : a) {
    const auto other = b.find(x);
    if (other == b.end()) continue;
    const double difference = std::log(sum.y / static_cast<double>(sum.count)) -
                              std::log(other->second.y / static_cast<double>(other->second.count));
    if (last > 0 && difference <= 0)
      return std::exp(std::log(last_x) +
                      (std::log(x) - std::log(last_x)) * last / (last - difference));
    last_x = x;
    last = difference;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> slopes(const Table& table, const Chart& chart) {
  constexpr size_t most_curves = 12;
  if (!chart.log_x || !chart.log_y || chart.bars) return {};
  const size_t x = table.column(chart.x), y = table.column(chart.y);
  std::vector<size_t> series;  // those with more than one value, as in page.js
  for (const std::string& name : chart.series) {
    const size_t at = table.column(name);
    if (std::any_of(table.rows.begin(), table.rows.end(),
                    [&](const auto& row) { return row[at] != table.rows[0][at]; }))
      series.push_back(at);
  }
  std::vector<std::string> labels;
  std::map<std::string, Points> curves;
  for (const auto& row : table.rows) {
    const auto at = positive(row[x]), value = positive(row[y]);
    if (!at || !value) continue;
    std::string label;
    for (const size_t each : series) {
      if (std::holds_alternative<std::monostate>(row[each])) continue;
      label.append(label.empty() ? "" : " · ");
      if (!std::holds_alternative<std::string>(row[each])) {
        const Column& column = table.columns[each];
        label.append(column.heading.empty() ? column.name : column.heading).append(" ");
      }
      label.append(to_text(row[each]));
    }
    if (!curves.contains(label)) labels.push_back(label);
    Sum& sum = curves[label][*at];
    sum.y += *value;
    ++sum.count;
  }
  if (labels.size() > most_curves) return {};
  std::string fitted, crossed;
  const Points* softmax = nullptr;
  for (const std::string& label : labels) {
    if (!softmax && label.starts_with("softmax")) softmax = &curves[label];
    if (curves[label].size() < 3) continue;
    std::vector<double> xs, ys;
    for (const auto& [at, sum] : curves[label]) {
      xs.push_back(at);
      ys.push_back(sum.y / static_cast<double>(sum.count));
    }
    fitted += fmt::format("{}{}{:.2f}", fitted.empty() ? "" : ", ",
                          label.empty() ? label : label + " ", fit_power(xs, ys).slope);
  }
  if (softmax)
    for (const std::string& label : labels)
      if (const auto at = crossing(curves[label], *softmax); at && softmax != &curves[label])
        crossed += fmt::format("{}{} from about {:.3g}", crossed.empty() ? "" : ", ", label, *at);
  std::vector<std::string> out;
  if (!fitted.empty()) out.push_back("Fitted exponents: " + fitted + ".");
  if (!crossed.empty()) out.push_back("Below softmax: " + crossed + ".");
  return out;
}

}  // namespace longhand::train

#include "longhand/train/lab/report/slopes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "longhand/core/statistics.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::train {
namespace {

struct Sum {
  double y = 0;
  int64_t count = 0;
};
using Points = std::map<double, Sum>;  // rows with the same x are averaged

std::optional<double> positive(const Cell& cell) {
  const std::optional<double> value = number_in(cell);
  return value && std::isfinite(*value) && *value > 0 ? value : std::nullopt;
}

std::map<double, double> means(const Points& points) {
  std::map<double, double> out;
  for (const auto& [x, sum] : points) out[x] = sum.y / static_cast<double>(sum.count);
  return out;
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
        label.append(table.columns[each].shown()).append(" ");
      }
      label.append(to_text(row[each]));
    }
    if (!curves.contains(label)) labels.push_back(label);
    Sum& sum = curves[label][*at];
    sum.y += *value;
    ++sum.count;
  }
  if (labels.size() > most_curves) return {};
  std::vector<std::string> fitted, crossed, out;
  const Points* softmax = nullptr;
  for (const std::string& label : labels) {
    if (!softmax && label.starts_with("softmax")) softmax = &curves[label];
    if (curves[label].size() < 3) continue;
    std::vector<double> xs, ys;
    for (const auto& [at, mean] : means(curves[label])) {
      xs.push_back(at);
      ys.push_back(mean);
    }
    fitted.push_back(
        fmt::format("{}{:.2f}", label.empty() ? label : label + " ", fit_power(xs, ys).slope));
  }
  if (softmax)
    for (const std::string& label : labels)
      if (const Crossover at = crossover(means(*softmax), means(curves[label]));
          at.kind == Crossover::Kind::at)
        crossed.push_back(fmt::format("{} from about {:.3g}", label, at.length));
  if (!fitted.empty()) out.push_back(fmt::format("Fitted exponents: {}.", fmt::join(fitted, ", ")));
  if (!crossed.empty()) out.push_back(fmt::format("Below softmax: {}.", fmt::join(crossed, ", ")));
  return out;
}

}  // namespace longhand::train

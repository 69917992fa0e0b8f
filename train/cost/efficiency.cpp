#include "longhand/train/cost/efficiency.h"

#include <fmt/format.h>

#include <cmath>
#include <set>
#include <utility>

namespace longhand::train {

std::vector<CostSlope> slopes_of(const std::vector<Cost>& costs, int64_t Cost::*fixed,
                                 int64_t Cost::*varied) {
  std::vector<CostSlope> out;
  const auto key = [&](const Cost& c) { return std::pair(c.attention, c.*fixed); };
  for (const auto& group : in_groups(costs, key)) {
    const auto values = [&](auto Cost::*value) {
      std::vector<double> out_of_group;
      for (const Cost* const cost : group)
        if (cost->*varied > 0) out_of_group.push_back(static_cast<double>(cost->*value));
      return out_of_group;
    };
    const std::vector<double> x = values(varied);
    if (std::set(x.begin(), x.end()).size() < 2) continue;
    const auto line = [&](double Cost::*value) { return fit_power(x, values(value)); };
    out.push_back({group[0]->attention, group[0]->*fixed, line(&Cost::seconds),
                   line(&Cost::seconds_forward), line(&Cost::bytes)});
  }
  return out;
}

Crossover crossover(const std::map<double, double>& exact, const std::map<double, double>& other) {
  double before = 0, from = 0;  // longest length at which it is not better, and the next one
  for (const auto& [length, cost] : exact) {
    if (!other.contains(length)) continue;
    const bool better = other.at(length) < cost;
    if (!better) before = length;
    if (!better || from == 0) from = better ? length : 0;
  }
  if (from == 0 && before == 0) return {};
  if (from == 0) return {Crossover::Kind::never, before};
  if (before == 0) return {Crossover::Kind::always, from};
  const auto gain = [&](double n) { return std::log(exact.at(n) / other.at(n)); };
  const double low = std::log(before), high = std::log(from);
  const double at = low + (high - low) * gain(before) / (gain(before) - gain(from));
  return {Crossover::Kind::at, std::exp(at)};
}

std::string to_text(const Crossover& crossover, const std::string& better) {
  switch (crossover.kind) {
    case Crossover::Kind::unknown:
      return "";
    case Crossover::Kind::always:
      return fmt::format("{} from {:.0f} tokens or fewer", better, crossover.length);
    case Crossover::Kind::never:
      return fmt::format("not {} up to {:.0f} tokens", better, crossover.length);
    case Crossover::Kind::at:
      return fmt::format("{} from about {:.0f} tokens", better, crossover.length);
  }
  return "";
}

}  // namespace longhand::train

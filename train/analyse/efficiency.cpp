// Implements longhand analyse efficiency.
#include <fmt/format.h>

#include <map>

#include "longhand/attention/registry.h"
#include "longhand/train/analyse/analyse.h"

namespace longhand::train::analyse {
namespace {

Cell size_cell(int64_t size) { return size ? Cell(size) : Cell(); }

/// The baseline's cost at the same length, as a multiple of this cost.
Cell saved(const std::vector<Cost>& costs, const Cost& cost, double Cost::*value) {
  for (const Cost& each : costs)
    if (each.attention == "softmax" && each.length == cost.length)
      return each.*value / (cost.*value);
  return {};
}

Table cost_table(const std::vector<Cost>& costs) {
  Table table{
      "costs", "Time and memory of one sequence",
      "Medians of forward and backward together, with quartiles; memory is that of tensors at "
      "the peak. Saved: softmax's cost over the variant's."};
  for (const Cost& c : costs)
    add_row(table, {{"attention", c.attention},
                    {"size", size_cell(c.size)},
                    {"length", c.length},
                    {"ms", 1e3 * c.seconds, "ms", 3},
                    {"ms_quartile_1", 1e3 * c.seconds_low, "25 %", 3},
                    {"ms_quartile_3", 1e3 * c.seconds_high, "75 %", 3},
                    {"ms_forward", 1e3 * c.seconds_forward, "forward ms", 3},
                    {"mib", c.bytes / (1 << 20), "MiB", 3},
                    {"time_saved", saved(costs, c, &Cost::seconds), "time saved", 3},
                    {"forward_saved", saved(costs, c, &Cost::seconds_forward), "forward saved", 3},
                    {"memory_saved", saved(costs, c, &Cost::bytes), "memory saved", 3}});
  add_chart(table, "Time against length", "length", "ms", {"attention", "size"}, true, true);
  add_chart(table, "Memory against length", "length", "mib", {"attention", "size"}, true, true);
  add_chart(table, "Time against size", "size", "ms", {"attention", "length"}, true, true);
  for (const size_t i : {0, 2}) {
    table.charts[i].low = "ms_quartile_1";
    table.charts[i].high = "ms_quartile_3";
  }
  return table;
}

Table slope_table(const std::string& varied, const std::string& fixed,
                  const std::vector<CostSlope>& slopes) {
  Table table{varied + "_slopes", "Exponents of costs against " + varied};
  for (const CostSlope& s : slopes)
    add_row(table, {{"attention", s.attention},
                    {fixed, size_cell(s.size)},
                    {"time", estimate_of(s.seconds, 2), "time"},
                    {"forward", estimate_of(s.forward, 2), "forward"},
                    {"memory", estimate_of(s.bytes, 2), "memory"}});
  return table;
}

/// The tables of the Linformer paper: one row per variant and length, one column per size.
Table saved_table(const std::string& name, const std::string& title, const EfficiencyOptions& a,
                  const std::vector<Cost>& costs, double Cost::*value) {
  Table table{name, title, "", {{"attention", ""}, {"length", ""}}};
  for (const int64_t size : a.sizes)
    table.columns.push_back({fmt::format("k{}", size), fmt::format("k = {}", size), 3});
  for (const std::string& variant : a.attention) {
    if (size_option(variant).empty()) continue;
    for (const int64_t length : a.length) {
      std::vector<Cell>& row = table.rows.emplace_back();
      row = {variant, length};
      for (const int64_t size : a.sizes) {
        Cell& cell = row.emplace_back();
        for (const Cost& c : costs)
          if (c.attention == variant && c.length == length && c.size == size)
            cell = saved(costs, c, value);
      }
    }
  }
  return table;
}

Table crossover_table(const std::vector<Cost>& costs, std::string& summary) {
  Table table{
      "crossovers",
      "Length from which a variant costs less than softmax",
      "Between measured lengths by interpolation of logarithms; empty: not up to the longest.",
      {{"attention", ""},
       {"size", ""},
       {"time", "faster from", 3},
       {"forward", "forward faster from", 3},
       {"memory", "less memory from", 3},
       {"meaning", ""}}};
  const auto key = [](const Cost& c) { return std::pair(c.attention, c.size); };
  for (const auto& group : in_groups(costs, key)) {
    const Cost& first = *group[0];
    if (first.attention == "softmax") continue;
    const auto by_length = [&](const std::string& attention, int64_t size, double Cost::*value) {
      std::map<double, double> out;
      for (const Cost& c : costs)
        if (c.attention == attention && c.size == size)
          out[static_cast<double>(c.length)] = c.*value;
      return out;
    };
    const auto find = [&](double Cost::*value) {
      return crossover(by_length("softmax", 0, value),
                       by_length(first.attention, first.size, value));
    };
    const auto cell = [](const Crossover& c) {
      return c.kind == Crossover::Kind::at || c.kind == Crossover::Kind::always ? Cell(c.length)
                                                                                : Cell();
    };
    const Crossover time = find(&Cost::seconds);
    const std::string text = to_text(time, "faster");
    table.rows.push_back({first.attention, size_cell(first.size), cell(time),
                          cell(find(&Cost::seconds_forward)), cell(find(&Cost::bytes)), text});
    if (summary.empty())
      summary = fmt::format("Against softmax, {}{} is {}.", first.attention,
                            first.size ? fmt::format(" of size {}", first.size) : "", text);
  }
  return table;
}

}  // namespace

std::vector<PlannedCost> planned_costs(const EfficiencyOptions& a) {
  std::vector<PlannedCost> out;
  std::vector<std::string> variants{"softmax"};
  for (const std::string& name : a.attention)
    if (name != "softmax") variants.push_back(name);
  for (const int64_t length : a.length)
    for (const std::string& name : variants) {
      longhand::attention::spec(name);  // throws
      const std::string option = size_option(name);
      if (option.empty()) {
        out.push_back({name, "", 0, length});
        continue;
      }
      for (const int64_t size : a.sizes)
        if (size < length) out.push_back({name, option, size, length});
    }
  return out;
}

Results efficiency(const EfficiencyOptions& a, const std::vector<Cost>& costs) {
  std::string summary;
  const Table crossovers = crossover_table(costs, summary);
  Results results{.title = fmt::format("Costs of {}, model {}",
                                       a.what == "step" ? "training steps" : "attention", a.model),
                  .summary = summary};
  results.tables.push_back(cost_table(costs));
  for (const Table& slopes :
       {slope_table("length", "size", slopes_of(costs, &Cost::size, &Cost::length)),
        slope_table("size", "length", slopes_of(costs, &Cost::length, &Cost::size))})
    if (!slopes.rows.empty()) results.tables.push_back(slopes);
  results.tables.push_back(crossovers);
  const std::string against = a.naive ? "softmax with its N x N matrix in memory" : "softmax";
  results.tables.push_back(saved_table("time_saved",
                                       "Forward time of " + against + " over the variant's", a,
                                       costs, &Cost::seconds_forward));
  results.tables.push_back(saved_table(
      "memory_saved", "Memory of " + against + " over the variant's", a, costs, &Cost::bytes));
  return results;
}

}  // namespace longhand::train::analyse

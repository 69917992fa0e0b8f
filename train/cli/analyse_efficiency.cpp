// longhand analyse efficiency: measured time and memory against length and size.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "longhand/attention/registry.h"
#include "longhand/core/parallel.h"
#include "longhand/train/cli/analyse.h"
#include "longhand/train/cli/child.h"
#include "longhand/train/cost/efficiency.h"

namespace longhand::cli {
namespace {

using train::Cell;
using train::Cost;
using train::Crossover;
using train::Table;

struct Arguments : ResultsArguments {
  std::string what = "attention", model = "L";
  std::vector<std::string> attention{"linformer", "nystrom", "performer", "linear"};
  std::vector<int64_t> sizes{32, 64, 128, 256}, length{512, 1024, 2048, 4096};
  int64_t tokens = 4096;
  double seconds = 0.3;
  bool naive = false;
};

/// The option that sets the size of a variant; empty if it has none.
std::string size_option(const std::string& variant) {
  static const std::map<std::string, std::string> options = {
      {"linformer", "k"},  {"performer", "features"},  {"nystrom", "landmarks"},
      {"rff", "features"}, {"skyformer", "landmarks"}, {"window", "window"},
      {"lowrank", "rank"}};
  const auto found = options.find(variant);
  return found == options.end() ? "" : found->second;
}

struct Planned {
  std::string attention, option;
  int64_t size, length;
};

std::vector<Planned> plan(const Arguments& a) {
  std::vector<Planned> out;
  std::vector<std::string> variants{"softmax"};
  for (const std::string& name : a.attention)
    if (name != "softmax") variants.push_back(name);
  for (const int64_t length : a.length)
    for (const std::string& name : variants) {
      attention::spec(name);  // throws
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

/// Measured in a process of its own; nothing if it failed.
std::optional<Cost> measure(const Arguments& a, const Planned& p, int& code) {
  std::vector<std::string> words = {"bench",       a.what,
                                    "--quiet",     "--json",
                                    "--model",     a.model,
                                    "--attention", p.attention,
                                    "--length",    std::to_string(p.length),
                                    "--tokens",    std::to_string(std::max(a.tokens, p.length)),
                                    "--seconds",   fmt::format("{}", a.seconds),
                                    "--threads",   std::to_string(threads()),
                                    "--seed",      std::to_string(seed_or_default(a))};
  const auto set = [&](const std::string& assignment) {
    words.insert(words.end(), {"--set", "attention." + assignment});
  };
  if (!p.option.empty()) set(p.option + "=" + std::to_string(p.size));
  if (a.naive && p.attention == "softmax") set("impl=naive");
  const auto text = run_program_with(words, fmt::format("{} {}", p.attention, p.length), code);
  if (!text) return {};
  const Json json = Json::parse(*text).at("cells").at(0);
  const double batch = json["batch"].get<double>();
  const auto of_one = [&](const char* key) { return json[key].get<double>() / batch; };
  return Cost{p.attention,
              p.size,
              p.length,
              of_one("seconds"),
              of_one("seconds_low"),
              of_one("seconds_high"),
              of_one("seconds_forward"),
              of_one("allocated_bytes")};
}

Cell size_cell(int64_t size) { return size ? Cell(size) : Cell(); }

/// How many times less the baseline's cost is at the same length.
std::optional<double> saved(const std::vector<Cost>& costs, const Cost& cost, double Cost::*value) {
  for (const Cost& each : costs)
    if (each.attention == "softmax" && each.length == cost.length)
      return each.*value / (cost.*value);
  return {};
}

Cell ratio_cell(const std::optional<double>& ratio) { return ratio ? Cell(*ratio) : Cell(); }

Table cost_table(const std::vector<Cost>& costs) {
  Table table{
      "costs",
      "Time and memory of one sequence",
      "Medians of forward and backward together, with quartiles; memory is that of tensors at "
      "the peak. Saved: softmax's cost over the variant's.",
      {{"attention", ""},
       {"size", ""},
       {"length", ""},
       {"ms", "ms", 3},
       {"ms_quartile_1", "25 %", 3},
       {"ms_quartile_3", "75 %", 3},
       {"ms_forward", "forward ms", 3},
       {"mib", "MiB", 3},
       {"time_saved", "time saved", 3},
       {"forward_saved", "forward saved", 3},
       {"memory_saved", "memory saved", 3}}};
  for (const Cost& c : costs)
    table.rows.push_back({c.attention, size_cell(c.size), c.length, 1e3 * c.seconds,
                          1e3 * c.seconds_low, 1e3 * c.seconds_high, 1e3 * c.seconds_forward,
                          c.bytes / (1 << 20), ratio_cell(saved(costs, c, &Cost::seconds)),
                          ratio_cell(saved(costs, c, &Cost::seconds_forward)),
                          ratio_cell(saved(costs, c, &Cost::bytes))});
  table.charts = {
      {"Time against length",
       "length",
       "ms",
       {"attention", "size"},
       "ms_quartile_1",
       "ms_quartile_3",
       true,
       true},
      {"Memory against length", "length", "mib", {"attention", "size"}, "", "", true, true},
      {"Time against size",
       "size",
       "ms",
       {"attention", "length"},
       "ms_quartile_1",
       "ms_quartile_3",
       true,
       true}};
  return table;
}

Table slope_table(const std::string& name, const std::string& title, const std::string& fixed,
                  const std::vector<train::CostSlope>& slopes) {
  Table table{name, title, "", {{"attention", ""}, {fixed, ""}}};
  for (const auto& [column, heading] :
       {std::pair("time", "time"), {"forward", "forward"}, {"memory", "memory"}})
    add_estimate(table.columns, column, heading);
  for (const train::CostSlope& s : slopes) {
    auto& row = table.rows.emplace_back();
    row = {s.attention, size_cell(s.size)};
    for (const Line* const line : {&s.seconds, &s.forward, &s.bytes})
      add_estimate(row, {line->slope, line->low, line->high, 2});
  }
  return table;
}

/// The tables of the Linformer paper: one row for each variant and length, one column for each size.
Table saved_table(const std::string& name, const std::string& title, const Arguments& a,
                  const std::vector<Cost>& costs, double Cost::*value) {
  Table table{name, title, "", {{"attention", ""}, {"length", ""}}};
  for (const int64_t size : a.sizes)
    table.columns.push_back({fmt::format("k{}", size), fmt::format("k = {}", size), 3});
  for (const std::string& variant : a.attention) {
    if (size_option(variant).empty()) continue;
    for (const int64_t length : a.length) {
      auto& row = table.rows.emplace_back();
      row = {variant, length};
      for (const int64_t size : a.sizes) {
        Cell cell;
        for (const Cost& c : costs)
          if (c.attention == variant && c.length == length && c.size == size)
            cell = ratio_cell(saved(costs, c, value));
        row.push_back(cell);
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
  std::vector<std::pair<std::string, int64_t>> order;
  for (const Cost& c : costs)
    if (const std::pair key(c.attention, c.size);
        c.attention != "softmax" && std::find(order.begin(), order.end(), key) == order.end())
      order.push_back(key);
  for (const auto& variant : order) {
    const std::string& attention = variant.first;
    const int64_t size = variant.second;
    const auto by_length = [&](const std::string& of, int64_t of_size, double Cost::*value) {
      std::map<double, double> out;
      for (const Cost& c : costs)
        if (c.attention == of && c.size == of_size) out[static_cast<double>(c.length)] = c.*value;
      return out;
    };
    const auto find = [&](double Cost::*value) {
      return train::crossover(by_length("softmax", 0, value), by_length(attention, size, value));
    };
    const auto cell = [](const Crossover& c) {
      return c.kind == Crossover::Kind::at || c.kind == Crossover::Kind::always ? Cell(c.length)
                                                                                : Cell();
    };
    const Crossover time = find(&Cost::seconds);
    const std::string text = to_text(time, "faster");
    table.rows.push_back({attention, size_cell(size), cell(time),
                          cell(find(&Cost::seconds_forward)), cell(find(&Cost::bytes)), text});
    if (summary.empty())
      summary = fmt::format("Against softmax, {}{} is {}.", attention,
                            size ? fmt::format(" of size {}", size) : "", text);
  }
  return table;
}

int analyse(const Arguments& a) {
  check<ConfigError>(a.what == "attention" || a.what == "step", "--what ", a.what,
                     ": expected attention or step");
  const std::vector<Planned> planned = plan(a);
  Progress progress(a.progress(), "analyse efficiency", 2);
  std::vector<Cost> costs;
  int worst = success;
  for (size_t i = 0; i < planned.size(); ++i) {
    const Planned& p = planned[i];
    progress.update(static_cast<int64_t>(i), static_cast<int64_t>(planned.size()),
                    fmt::format("{}{} {}", p.attention,
                                p.size ? fmt::format(" {}={}", p.option, p.size) : "", p.length));
    int code = success;
    if (const auto cost = measure(a, p, code))
      costs.push_back(*cost);
    else if (code == usage_error)
      return code;
    else
      worst = failure;
  }
  progress.clear();
  check(!costs.empty(), "analyse efficiency: no measurement succeeded");
  std::string summary;
  const Table crossovers = crossover_table(costs, summary);
  train::Results results =
      new_results(fmt::format("Costs of {}, model {}",
                              a.what == "step" ? "training steps" : "attention", a.model),
                  summary);
  results.tables.push_back(cost_table(costs));
  if (const auto slopes = train::slopes_by_length(costs); !slopes.empty())
    results.tables.push_back(
        slope_table("length_slopes", "Exponents of costs against length", "size", slopes));
  if (const auto slopes = train::slopes_by_size(costs); !slopes.empty())
    results.tables.push_back(
        slope_table("size_slopes", "Exponents of costs against size", "length", slopes));
  results.tables.push_back(crossovers);
  const std::string against = a.naive ? "softmax with its N x N matrix in memory" : "softmax";
  results.tables.push_back(saved_table("time_saved",
                                       "Forward time of " + against + " over the variant's", a,
                                       costs, &Cost::seconds_forward));
  results.tables.push_back(saved_table(
      "memory_saved", "Memory of " + against + " over the variant's", a, costs, &Cost::bytes));
  const int code = finish(a, results);
  return worst == success ? code : worst;
}

}  // namespace

void add_analyse_efficiency(Command& group) {
  const auto a = std::make_shared<Arguments>();
  Command c = group.command(
      "efficiency", "Time and memory against length and size; exponents, crossovers, savings",
      [a] { return analyse(*a); });
  c.add("--what", a->what, "WHAT",
        "attention alone, or a training step: attention or step [attention]");
  c.add("--model", a->model, "L|M", "Sizes of bench [L]");
  c.add("--attention", a->attention, "NAME,...",
        "Variants, beside softmax [linformer,nystrom,performer,linear]")
      .separated_by_commas();
  c.add("--sizes", a->sizes, "K,...", "Slots, landmarks or features [32,64,128,256]")
      .separated_by_commas()
      .positive();
  c.add("--length", a->length, "N,...", "Tokens of a sequence [512,1024,2048,4096]")
      .separated_by_commas()
      .positive();
  c.add("--tokens", a->tokens, "N", "Tokens of a batch, at least one sequence [4096]").positive();
  c.add("--seconds", a->seconds, "S", "Time each cell for S seconds, at least three times [0.3]")
      .not_negative();
  c.flag("--naive", a->naive, "Compare with softmax that keeps its N x N weights, as papers do");
  add_common(c, *a);
  c.footer("Every cell is a process of its own, as in longhand bench; measure on an idle machine.");
}

}  // namespace longhand::cli

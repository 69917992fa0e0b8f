#include "longhand/train/lab/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "longhand/core/statistics.h"
#include "longhand/core/version.h"
#include "longhand/data/file.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/lab/columns.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

constexpr double level = 0.05;      // of significance
constexpr double tolerance = 0.01;  // of equal budgets

/// What training and using a variant costs; nothing where unknown.
struct Budgets {
  std::optional<double> parameters, flops, milliseconds, memory, state;
};
struct BudgetColumn {
  Column column;
  const char* word;
  std::optional<double> Budgets::*value;
  bool integer;
};
const std::vector<BudgetColumn>& budget_columns() {
  static const std::vector<BudgetColumn> columns = {
      {{"parameters", "parameters"}, "parameters", &Budgets::parameters, true},
      {{"flops_per_step", "FLOPs a step"}, "FLOPs", &Budgets::flops, false},
      {{"ms_per_step", "ms a step", 3}, "ms a step", &Budgets::milliseconds, false},
      {{"peak_memory_mib", "peak memory (MiB)"}, "memory", &Budgets::memory, false},
      {{"state_bytes", "state (bytes)"}, "state", &Budgets::state, true},
  };
  return columns;
}

Cell cell_of(std::optional<double> value, bool integer = false) {
  if (!value) return {};
  if (integer) return static_cast<int64_t>(std::llround(*value));
  return *value;
}

Cell cell_of_number(double value) { return std::isnan(value) ? Cell{} : Cell{value}; }

template <class T>
void append(std::vector<T>& to, std::vector<T> more) {
  for (T& each : more) to.push_back(std::move(each));
}

/// The cost of a variant, from a run that has begun.
void add_model_costs(const fs::path& run, int64_t parameters, Budgets& budgets) {
  const Config config = Config::load(run / "config.toml");
  const attention::TransformerConfig model = read_model(config, nullptr);
  const auto batch =
      static_cast<double>(read_section<TrainSection>(config.train()).loading.batch_size);
  budgets.flops = step_work(model, batch, static_cast<double>(parameters)).total().flops;
  if (const int64_t bytes = decoding_bytes(model); bytes > 0)
    budgets.state = static_cast<double>(bytes);
}

double mean(const std::vector<double>& values) { return longhand::estimate(values).mean; }

/// A variant with the runs of all seeds.
struct Row {
  const SweepVariant* variant = nullptr;
  std::optional<size_t> trial{};
  std::map<int64_t, double> test{}, validation{};  // metric by seed
  Budgets budgets{};
  std::optional<double> seconds{};
  int64_t failed = 0, damaged = 0;
  std::string failure{};
};

Row row_of(const Sweep& sweep, const SweepVariant& variant, const CellStates& states,
           const fs::path& directory) {
  Row row;
  row.variant = &variant;
  row.trial = best_trial(sweep, variant, states);
  for (const auto& trial : variant.search)
    for (const SweepCell& cell : trial)
      row.damaged += states.at(cell.hash).status == CellStatus::damaged;
  if (!row.trial) {
    // Without a value to train with, no final cell can be run.
    for (const auto& trial : variant.search)
      for (const SweepCell& cell : trial) {
        const CellState& state = states.at(cell.hash);
        if (!state.has_failed() && !state.is_trained()) return row;
        row.failure = "searches " + to_string(state.status);
      }
    row.failed = static_cast<int64_t>(variant.search.size());
    return row;
  }
  std::vector<double> milliseconds, memory, seconds;
  for (const SweepCell& cell : variant.final[*row.trial]) {
    const CellState& state = states.at(cell.hash);
    row.damaged += state.status == CellStatus::damaged;
    if (state.has_failed()) {
      ++row.failed;
      if (row.failure.empty()) row.failure = to_string(state.status);
    }
    if (!state.is_trained()) continue;
    const Summary& summary = *state.summary;
    if (state.validation) row.validation[cell.seed] = metric_of(sweep, *state.validation);
    if (state.test) row.test[cell.seed] = metric_of(sweep, *state.test);
    if (summary.step_seconds) milliseconds.push_back(1000 * *summary.step_seconds);
    memory.push_back(static_cast<double>(std::max(summary.peak_memory, state.record.peak_memory)) /
                     (1 << 20));
    seconds.push_back(state.record.seconds);
    if (row.budgets.parameters) continue;
    row.budgets.parameters = static_cast<double>(summary.parameters);
    add_model_costs(cell_directory(directory, cell), summary.parameters, row.budgets);
  }
  if (!milliseconds.empty()) row.budgets.milliseconds = mean(milliseconds);
  if (!memory.empty()) row.budgets.memory = mean(memory);
  if (!seconds.empty()) row.seconds = mean(seconds);
  return row;
}

std::vector<double> values_of(const std::map<int64_t, double>& by_seed) {
  std::vector<double> out;
  for (const auto& [seed, value] : by_seed) out.push_back(value);
  return out;
}

/// The test of a row against its baseline, over the seeds that both have.
PairedTest against(const Sweep& sweep, const Row& row, const Row& baseline) {
  std::vector<double> a, b;
  for (const auto& [seed, value] : row.test)
    if (const auto other = baseline.test.find(seed); other != baseline.test.end()) {
      a.push_back(value);
      b.push_back(other->second);
    }
  return sweep.metric == "accuracy" ? paired_test_of_seeds(a, b) : paired_test(a, b);
}

/// How much larger a budget is than that of the baseline; nothing if they are equal, or if either is
/// unknown.
std::optional<double> excess(const BudgetColumn& budget, const Budgets& own,
                             const Budgets& baseline) {
  const auto a = own.*budget.value, b = baseline.*budget.value;
  if (!a || !b || *b == 0 || std::abs(*a / *b - 1) <= tolerance) return std::nullopt;
  return *a / *b - 1;
}

/// "parameters +12 %, FLOPs -40 %"
std::string unequal(const Budgets& own, const Budgets& baseline) {
  std::string out;
  for (const BudgetColumn& each : budget_columns())
    if (const auto more = excess(each, own, baseline))
      out += fmt::format("{}{} {:+.0f} %", out.empty() ? "" : ", ", each.word, 100 * *more);
  return out;
}

/// The mean over seeds, of accuracies with accuracy_of_seeds().
Estimate metric_estimate(const Sweep& sweep, const Row& row) {
  const std::vector<double> values = values_of(row.test);
  return sweep.metric == "accuracy" ? accuracy_of_seeds(values) : longhand::estimate(values);
}

/// Whether the scores of finished cells are of the validation split, for want of a test split.
bool lacks_test_split(const CellStates& states) {
  return std::any_of(states.begin(), states.end(), [](const auto& each) {
    return each.second.test && !each.second.has_test_split();
  });
}

void add_charts(const Sweep& sweep, const Grid& grid, const std::string& scored, Table& table) {
  const Charted charted{(scored == "test" ? "Test " : "Validation ") + sweep.metric, sweep.metric,
                        "low", "high"};
  table.charts.push_back({.title = charted.title + " by variant",
                          .x = "variant",
                          .y = charted.y,
                          .low = charted.low,
                          .high = charted.high,
                          .bars = true});
  add_charts_against_keys(grid.keys, charted, table);
  for (const char* const budget : {"ms_per_step", "state_bytes"})
    add_chart_against(budget, {"variant"}, charted, table);
}

Table variants_table(const Sweep& sweep, const Grid& grid, const CellStates& states,
                     const std::vector<Row>& rows) {
  const std::string scored = lacks_test_split(states) ? "best validation" : "test";
  Table table{.name = "variants",
              .title = fmt::format("Variants, by their {} on the {} split", sweep.metric,
                                   scored == "test" ? "test" : "validation"),
              .columns = {{"variant", ""}}};
  append(table.columns, key_columns(grid.keys));
  if (!grid.search_key.empty()) table.columns.push_back({"chosen", grid.search_key});
  append(table.columns, {{"seeds", ""},
                         {"validation", "validation " + sweep.metric},
                         {sweep.metric, scored + " " + sweep.metric},
                         {"low", "95 % from"},
                         {"high", "to"},
                         {"difference", "- baseline"},
                         {"p", "", 2}});
  for (const BudgetColumn& each : budget_columns()) table.columns.push_back(each.column);
  append(table.columns, {{"seconds", "", 3}, {"unequal", "differs by over 1 %"}, {"failed", ""}});
  table.note =
      "Means over seeds, with 95 % intervals (Student's t; of an accuracy, cut to 0 … 1). "
      "Difference and p are those of a paired t test against the baseline, seed by seed, with p "
      "corrected for the number of tests (Holm); there is no p where few seeds solve the task and "
      "others do not, or where all differences are equal. The checkpoint was chosen on the "
      "validation "
      "split. Memory and times are measured, and depend on what else the machine did.";
  if (scored != "test")
    table.note +=
        " The data have no test split: scores are those of the validation split, which also chose "
        "the checkpoint, so they are too good.";
  if (sweep.search)
    table.note += " " + grid.search_key +
                  " was chosen for each variant, from the same values, on the validation split.";

  std::vector<double> p(rows.size(), std::nan("")), difference = p;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].variant->baseline) continue;
    const PairedTest test = against(sweep, rows[i], rows[*rows[i].variant->baseline]);
    difference[i] = test.difference.mean;
    p[i] = test.p;
  }
  p = holm(p);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Estimate interval = metric_estimate(sweep, row);
    auto& cells = table.rows.emplace_back();
    cells.emplace_back(row.variant->label);
    append(cells, key_cells(grid.keys, row.variant->values));
    if (!grid.search_key.empty())
      cells.push_back(row.trial ? Cell{grid.trials[*row.trial]} : Cell{});
    append(cells,
           {interval.count, cell_of_number(mean(values_of(row.validation))),
            cell_of_number(interval.mean), cell_of_number(interval.low),
            cell_of_number(interval.high), cell_of_number(difference[i]), cell_of_number(p[i])});
    for (const BudgetColumn& each : budget_columns()) {
      if (row.variant->baseline && excess(each, row.budgets, rows[*row.variant->baseline].budgets))
        table.marked.insert({i, cells.size()});
      cells.push_back(cell_of(row.budgets.*each.value, each.integer));
    }
    cells.push_back(cell_of(row.seconds));
    cells.emplace_back(
        row.variant->baseline ? unequal(row.budgets, rows[*row.variant->baseline].budgets) : "");
    std::string lost = row.failed == 0 ? "" : fmt::format("{} {}", row.failed, row.failure);
    if (row.damaged > 0) lost += fmt::format("{}{} damaged", lost.empty() ? "" : ", ", row.damaged);
    cells.emplace_back(std::move(lost));
  }
  for (const Row& row : rows)
    if (const std::vector<double> values = values_of(row.test);
        sweep.metric == "accuracy" && solved(values))
      table.note += fmt::format(" {}: {}; a mean of these has no interval.", row.variant->label,
                                without_interval(values));
  if (!table.marked.empty()) table.mark = "differs by more than 1 % from the baseline";
  add_charts(sweep, grid, scored, table);
  return table;
}

Table search_table(const Sweep& sweep, const Grid& grid, const CellStates& states,
                   const std::vector<Row>& rows) {
  Table table{.name = "search",
              .title = "Search of " + grid.search_key + " on the validation split",
              .columns = {{"variant", ""},
                          {"trial", grid.search_key},
                          {"validation", "validation " + sweep.metric},
                          {"status", ""},
                          {"chosen", ""}}};
  for (const Row& row : rows)
    for (size_t trial = 0; trial < row.variant->search.size(); ++trial) {
      std::vector<double> values;
      std::string status = "trained";
      for (const SweepCell& cell : row.variant->search[trial]) {
        const CellState& state = states.at(cell.hash);
        if (!state.is_trained()) status = to_string(state.status);
        if (state.is_trained() && state.validation)
          values.push_back(metric_of(sweep, *state.validation));
      }
      const bool chosen = row.trial && *row.trial == trial;
      table.rows.push_back({row.variant->label, grid.trials[trial], cell_of_number(mean(values)),
                            status, chosen ? "yes" : ""});
    }
  return table;
}

Table cells_table(const Grid& grid, const CellStates& states, const std::vector<Row>& rows) {
  Table table{
      .name = "cells", .title = "Cells: one run each", .columns = {{"cell", ""}, {"variant", ""}}};
  append(table.columns, key_columns(grid.keys));
  if (!grid.search_key.empty()) table.columns.push_back({"trial", grid.search_key});
  append(table.columns, {{"seed", ""},
                         {"phase", ""},
                         {"status", ""},
                         {"reason", ""},
                         {"step", ""},
                         {"validation_loss", "validation loss"},
                         {"validation_accuracy", "validation accuracy"},
                         {"test_loss", "test loss"},
                         {"test_accuracy", "test accuracy"},
                         {"parameters", ""},
                         // What follows depends on the machine and on interruptions.
                         {"attempts", ""},
                         {"ms_per_step", "ms a step", 3},
                         {"peak_memory_mib", "peak memory (MiB)"},
                         {"seconds", "", 3}});
  const auto add = [&](const SweepVariant& variant, size_t trial, const SweepCell& cell,
                       const char* phase) {
    const CellState& state = states.at(cell.hash);
    const auto known = [](const auto& from, auto value) -> Cell {
      return from ? Cell{value(*from)} : Cell{};
    };
    auto& cells = table.rows.emplace_back();
    append(cells, {cell.hash, variant.label});
    append(cells, key_cells(grid.keys, variant.values));
    if (!grid.search_key.empty()) cells.emplace_back(grid.trials[trial]);
    append(cells, {cell.seed, std::string(phase), to_string(state.status), state.record.reason});
    const auto& summary = state.summary;
    cells.push_back(known(summary, [](const Summary& s) { return s.step; }));
    for (const auto* const score : {&state.validation, &state.test}) {
      cells.push_back(known(*score, [](const Score& s) { return s.loss; }));
      cells.push_back(known(*score, [](const Score& s) { return s.accuracy; }));
    }
    cells.push_back(known(summary, [](const Summary& s) { return s.parameters; }));
    cells.emplace_back(state.record.attempts);
    cells.push_back(summary && summary->step_seconds ? Cell{1000 * *summary->step_seconds}
                                                     : Cell{});
    cells.push_back(state.record.peak_memory > 0
                        ? Cell{static_cast<double>(state.record.peak_memory) / (1 << 20)}
                        : Cell{});
    cells.emplace_back(state.record.seconds);
  };
  for (const Row& row : rows)
    for (size_t trial = 0; trial < row.variant->search.size(); ++trial)
      for (const SweepCell& cell : row.variant->search[trial])
        add(*row.variant, trial, cell, "search");
  for (const Row& row : rows)
    if (row.trial)
      for (const SweepCell& cell : row.variant->final[*row.trial])
        add(*row.variant, *row.trial, cell, "final");
  return table;
}

std::string summary_of(const Sweep& sweep, const Grid& grid, const CellStates& states,
                       const std::vector<Row>& rows, const Table& table) {
  const Row* best = nullptr;
  Estimate best_interval{};
  int64_t failed = 0;
  for (const Row& row : rows) {
    failed += row.failed;
    const Estimate interval = metric_estimate(sweep, row);
    if (interval.count == 0 || std::isnan(interval.mean)) continue;
    if (best && (sweep.metric == "loss" ? interval.mean >= best_interval.mean
                                        : interval.mean <= best_interval.mean))
      continue;
    best = &row;
    best_interval = interval;
  }
  if (!best) return "No cell is finished yet.";
  std::string text = fmt::format("Best of {} by {} {}: {}, {:.4g}", rows.size(),
                                 lacks_test_split(states) ? "validation" : "test", sweep.metric,
                                 best->variant->label, best_interval.mean);
  if (best_interval.count > 1 && std::isnan(best_interval.low))
    text += fmt::format(" ({})", without_interval(values_of(best->test)));
  else if (best_interval.count > 1)
    text += fmt::format(" (95 %: {:.4g} to {:.4g}, {} seeds)", best_interval.low,
                        best_interval.high, best_interval.count);
  text += ".";
  int64_t tests = 0, significant = 0;
  for (const auto& row : table.rows)
    if (const auto* const p = std::get_if<double>(&row[table.column("p")])) {
      ++tests;
      significant += *p < level;
    }
  if (tests > 0)
    text +=
        fmt::format(" {} of {} differ from their baseline (p < {}).", significant, tests, level);
  std::string edges;
  for (const Row& row : rows)
    if (row.trial && grid.trials.size() > 2 &&
        (*row.trial == 0 || *row.trial + 1 == grid.trials.size()))
      edges += (edges.empty() ? "" : ", ") + row.variant->label;
  if (!edges.empty())
    text += fmt::format(" The first or last value of {} was best for: {}; others may be better.",
                        grid.search_key, edges);
  if (failed > 0) text += fmt::format(" {} cells failed.", failed);
  return text;
}

}  // namespace

Results sweep_results(const Sweep& sweep, const Grid& grid, const CellStates& states,
                      const fs::path& directory, const std::string& command) {
  std::vector<Row> rows;
  for (const SweepVariant& variant : grid.variants)
    rows.push_back(row_of(sweep, variant, states, directory));
  Results results{.kind = "ablate",
                  .title = sweep.title,
                  .summary = "",
                  .command = command,
                  .machine = machine_and_threads(),
                  .date = utc_now(),
                  .version = version()};
  results.tables.push_back(variants_table(sweep, grid, states, rows));
  results.summary = summary_of(sweep, grid, states, rows, results.tables.front());
  for (const auto& [hash, state] : states)
    if (state.status == CellStatus::damaged)
      results.summary += fmt::format(" Cell {} is not counted, which may change the best: {}.",
                                     hash, state.record.reason);
  if (sweep.search) results.tables.push_back(search_table(sweep, grid, states, rows));
  results.tables.push_back(cells_table(grid, states, rows));
  return results;
}

void write_results(const Results& results, const fs::path& directory) {
  data::write_file_durably(directory / "results.json", to_json(results));
  for (const Table& table : results.tables) {
    if (table.name == "variants")
      data::write_file_durably(directory / "results.csv", to_csv(table));
    if (table.name == "cells") data::write_file_durably(directory / "cells.csv", to_csv(table));
  }
}

}  // namespace longhand::train

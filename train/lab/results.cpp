#include "longhand/train/lab/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "longhand/data/file.h"
#include "longhand/train/checkpoint/provenance.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/cost/bench.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/headline.h"
#include "longhand/train/lab/search.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

constexpr double tolerance = 0.01;  // for equal budgets
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

Cell rounded(double value) {
  return std::isnan(value) ? Cell{} : Cell{int64_t{std::llround(value)}};
}

/// The searched value in a row, if there is a search; the column's heading names its option.
RowField chosen(const Grid& grid, const char* column, std::optional<size_t> trial) {
  if (!grid.sweep.search) return {};
  Cell value;
  if (trial) {
    const Settings& point = grid.sweep.search->axis.points[*trial];
    value = point.size() == 1 ? option_cell(point.front().value, plain_text(point.front().value))
                              : Cell{grid.trials[*trial]};
  }
  return {column, value, grid.search_key};
}

/// The cost of training and using a variant.
struct Budget {
  Column column;
  const char* word;
  bool integer = false;
};
const std::array<Budget, 5> budgets = {{
    {{"parameters", ""}, "parameters", true},
    {{"flops_per_step", "FLOPs a step"}, "FLOPs"},
    {{"ms_per_step", "ms a step", 3}, "ms a step"},
    {{"peak_memory_mib", "peak memory (MiB)"}, "memory"},
    {{"state_bytes", "state (bytes)"}, "state", true},
}};
using Costs = std::array<double, 5>;  // one per budget; NaN where unknown

double mean(const std::vector<double>& values) { return longhand::estimate(values).mean; }

/// Conditions of a cell's timing; only times under equal ones are comparable. Empty: none.
std::string conditions_of(const CellState& state) {
  if (!state.is_trained()) return "";
  const std::string host = state.summary->host.empty() ? "an unknown host" : state.summary->host;
  return fmt::format("{}, threads: {}, jobs: {}", host, state.summary->threads,
                     state.record.jobs > 0 ? std::to_string(state.record.jobs) : "unknown");
}

/// The conditions of most cells.
std::string usual_conditions(const CellStates& states) {
  std::map<std::string, int64_t> counts;
  for (const auto& [hash, state] : states)
    if (state.is_trained()) ++counts[conditions_of(state)];
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  return most == counts.end() ? "" : most->first;
}

/// A variant with its runs for all seeds.
struct Row {
  const SweepVariant* variant = nullptr;
  SearchState search{};
  std::optional<size_t> trial{};
  SeedScores test{}, validation{};
  Costs costs{nan, nan, nan, nan, nan};
  double seconds = nan;
  int64_t examples = 0;   // of the test split; 0: unknown
  double guessing = nan;  // accuracy of guessing, for state tracking tasks
  int64_t failed = 0, damaged = 0;
  std::string failure{};
};

Row row_of(const Grid& grid, size_t variant, const CellStates& states,
           const std::string& conditions, const fs::path& directory) {
  Row row;
  row.variant = &grid.variants[variant];
  row.search = search_state(grid, variant, states);
  row.trial = row.search.reported;
  const auto searches = grid.searches(variant);
  for (const SweepCell& cell : searches)
    row.damaged += states.at(cell.hash).status == CellStatus::damaged;
  if (!row.trial) {
    if (!row.search.tasks.empty()) return row;
    // Without a value to train with, no final cell can run.
    auto worst = CellStatus::waiting;
    for (size_t trial = 0; trial < grid.trials.size(); ++trial) {
      if (!row.search.trials[trial].needed) continue;
      ++row.failed;
      for (const SweepCell& cell : grid.searches(variant, trial))
        worst = std::max(worst, states.at(cell.hash).status);
    }
    row.failure = "searches " + to_string(worst);
    return row;
  }
  std::vector<double> milliseconds, memory, seconds;
  double parameters = nan, flops = nan, state_bytes = nan;
  for (const SweepCell& cell : grid.finals(variant, *row.trial)) {
    const CellState& state = states.at(cell.hash);
    row.damaged += state.status == CellStatus::damaged;
    if (state.has_failed()) {
      ++row.failed;
      if (row.failure.empty()) row.failure = to_string(state.status);
    }
    if (!state.is_trained()) continue;
    const Summary& summary = *state.summary;
    if (state.validation) row.validation[cell.seed] = metric_of(grid.sweep, *state.validation);
    if (state.test) {
      row.test[cell.seed] = metric_of(grid.sweep, *state.test);
      row.examples = state.test->examples;
    }
    memory.push_back(mebibytes(std::max(summary.peak_memory, state.record.peak_memory)));
    if (conditions_of(state) == conditions) {
      if (summary.step_seconds) milliseconds.push_back(1000 * *summary.step_seconds);
      seconds.push_back(state.record.seconds);
    }
    if (!std::isnan(parameters)) continue;
    parameters = static_cast<double>(summary.parameters);
    const Config config = Config::load(cell_directory(directory, cell) / "config.toml");
    const attention::TransformerConfig model = read_model(config, nullptr);
    const auto batch =
        static_cast<double>(read_section<TrainSection>(config.train()).loading.batch_size);
    flops = step_work(model, batch, parameters).total().flops;
    if (const int64_t bytes = decoding_bytes(model); bytes > 0)
      state_bytes = static_cast<double>(bytes);
    if (const auto task = read_task_info(config); task && task->tracks)
      row.guessing = 1 / static_cast<double>(task->classes);
  }
  row.costs = {parameters, flops, mean(milliseconds), mean(memory), state_bytes};
  row.seconds = mean(seconds);
  return row;
}

/// Returns how much a budget exceeds the baseline's; nothing if they are equal or either is
/// unknown.
std::optional<double> excess(double own, double baseline) {
  const double more = own / baseline - 1;
  return baseline != 0 && std::abs(more) > tolerance ? std::optional(more) : std::nullopt;
}

/// "parameters +12 %, FLOPs -40 %"
std::string unequal(const Costs& own, const Costs& baseline) {
  std::vector<std::string> out;
  for (size_t b = 0; b < budgets.size(); ++b)
    if (const auto more = excess(own[b], baseline[b]))
      out.push_back(fmt::format("{} {:+.0f} %", budgets[b].word, 100 * *more));
  return comma_list(out);
}

/// Returns "2 of 3" seeds if a mean has no interval because only some seeds solved the task.
std::string solved_text(const Sweep& sweep, const Row& row) {
  const auto found = sweep.metric == "accuracy" ? solved(values_of(row.test)) : std::nullopt;
  return !found ? ""
                : fmt::format("{:.0f} of {}", found->mean * static_cast<double>(found->count),
                              found->count);
}

/// Returns whether finished cells have validation scores because there is no test split.
bool lacks_test_split(const CellStates& states) {
  return std::ranges::any_of(
      states, [](const auto& each) { return each.second.test && !each.second.has_test_split(); });
}

/// Determines which variants are best at each task.
Headline headline_of(const Sweep& sweep, const CellStates& states, const std::vector<Row>& rows) {
  std::vector<std::map<std::string, std::string>> values(rows.size());
  std::vector<std::string> labels;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const Setting& setting : rows[i].variant->values)
      values[i][setting.key] = plain_text(setting.value);
    labels.push_back(rows[i].variant->label);
  }
  const RowNames names = row_names(values, labels);
  const Metric metric{sweep.metric, !lacks_test_split(states)};
  std::vector<TaskScores> tasks;
  for (size_t i = 0; i < rows.size(); ++i) {
    auto found = std::ranges::find(tasks, names.task[i], &TaskScores::name);
    if (found == tasks.end()) found = tasks.insert(found, {names.task[i], metric});
    found->contenders.push_back({names.variant[i], rows[i].test, i, rows[i].examples,
                                 names.family[i], mean(values_of(rows[i].validation))});
  }
  return headline(tasks);
}

void add_charts(const Grid& grid, const std::string& scored, Table& table) {
  const std::string title = (scored == "test" ? "Test " : "Validation ") + grid.sweep.metric;
  add_bars(table, title + " by variant", "variant", grid.sweep.metric);
  add_charts_against_keys(table, title, grid.keys, grid.sweep.metric);
  for (const char* const budget : {"ms_per_step", "state_bytes"})
    add_chart_against(table, title, budget, grid.sweep.metric, {"variant"});
}

/// The width of a search's window.
RowField window_field(const Sweep& sweep, const Row& row) {
  if (!sweep.search || sweep.search->axis.points.size() < 3) return {};
  const auto window = window_of(sweep, row.search);
  return {"window", window ? Cell{*window} : Cell{}, "values within 90 %"};
}

Table variants_table(const Grid& grid, const CellStates& states, const std::vector<Row>& rows,
                     const std::set<size_t>& best) {
  const std::string scored = lacks_test_split(states) ? "best validation" : "test";
  Table table{.name = "variants",
              .title = fmt::format("Variants, by their {} on the {} split", grid.sweep.metric,
                                   scored == "test" ? "test" : "validation")};
  table.note =
      "Means over seeds, with 95 % intervals (Student's t; of an accuracy also for the choice of "
      "the test examples, and cut to 0 … 1; of a loss, cut at 0). "
      "Difference and p are those of a paired t test against the baseline, seed by seed, with p "
      "corrected for the number of tests (Holm); there is no p where few seeds solve the task and "
      "others do not, or where all differences are equal. The checkpoint was chosen on the "
      "validation split. Memory and times are measured, and depend on what else the machine did.";
  if (scored != "test")
    table.note +=
        " The data have no test split: scores are those of the validation split, which also chose "
        "the checkpoint, so they are optimistic.";
  if (grid.sweep.search)
    table.note += " " + grid.search_key +
                  " was chosen for each variant, from the same values, on the validation split. "
                  "The window is the number of values that reach 90 % of the best metric there.";

  std::vector<double> p(rows.size(), nan);
  std::vector<Estimate> difference(rows.size(), Estimate{nan, nan, nan, 0});
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].variant->baseline) continue;
    const PairedTest test = paired_by_seed(rows[i].test, rows[*rows[i].variant->baseline].test,
                                           grid.sweep.metric == "accuracy");
    difference[i] = test.difference;
    p[i] = test.p;
  }
  p = holm(p);
  const bool scales =
      grid.sweep.metric == "accuracy" &&
      std::ranges::any_of(rows, [](const Row& row) { return !std::isnan(row.guessing); });
  if (scales)
    table.note +=
        " Where a state is tracked, the scaled accuracy is (accuracy - c) / (1 - c) with c = 1 / "
        "classes: 0 for guessing, 1 for a task that is solved.";
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const Costs* const baseline =
        row.variant->baseline ? &rows[*row.variant->baseline].costs : nullptr;
    const Estimate score = mean_of(row.test, grid.sweep.metric == "accuracy", row.examples);
    RowField costs;
    for (size_t b = 0; b < budgets.size(); ++b) {
      costs.columns.push_back(budgets[b].column);
      costs.cells.push_back(budgets[b].integer ? rounded(row.costs[b]) : known(row.costs[b]));
    }
    std::vector<std::string> lost;
    if (row.failed > 0) lost.push_back(fmt::format("{} {}", row.failed, row.failure));
    if (row.damaged > 0) lost.push_back(fmt::format("{} damaged", row.damaged));
    add_row(
        table,
        {{"variant", row.variant->label},
         key_fields(grid.keys, row.variant->values),
         chosen(grid, "chosen", row.trial),
         window_field(grid.sweep, row),
         {"seeds", score.count},
         {"validation", known(mean(values_of(row.validation))), "validation " + grid.sweep.metric},
         score_fields(grid.sweep.metric, score, scored + " " + grid.sweep.metric),
         {"solved", solved_text(grid.sweep, row)},
         scales ? RowField{"scaled", known((score.mean - row.guessing) / (1 - row.guessing)),
                           "scaled accuracy"}
                : RowField{},
         {"difference", difference[i], "- baseline"},
         {"p", known(p[i]), "", 2},
         std::move(costs),
         {"seconds", known(row.seconds), "", 3},
         {"unequal", baseline ? unequal(row.costs, *baseline) : "", "differs by over 1 %"},
         {"failed", comma_list(lost)}});
    for (size_t b = 0; baseline && b < budgets.size(); ++b)
      if (excess(row.costs[b], (*baseline)[b]))
        table.marked.insert({i, table.column(budgets[b].column.name)});
  }
  if (std::ranges::any_of(rows, [](const Row& row) { return row.test.size() > 1; }))
    table.title += ", means with 95 % intervals";
  for (const size_t row : best) table.best.insert({row, table.column(grid.sweep.metric)});
  for (const Row& row : rows)
    if (const std::vector<double> values = values_of(row.test);
        grid.sweep.metric == "accuracy" && two_groups(values))
      table.note += fmt::format(" {}: {}; a mean of these has no interval.", row.variant->label,
                                without_interval(values));
  if (!table.marked.empty()) table.mark = "differs by more than 1 % from the baseline";
  add_charts(grid, scored, table);
  return table;
}

Table search_table(const Grid& grid, const CellStates& states, const std::vector<Row>& rows) {
  Table table{.name = "search",
              .title = "Search of " + grid.search_key + " on the validation split"};
  for (size_t v = 0; v < rows.size(); ++v)
    for (size_t trial = 0; trial < grid.trials.size(); ++trial) {
      const SearchState::Trial& found = rows[v].search.trials[trial];
      if (!found.needed && !found.metric) continue;
      std::vector<double> values;
      std::string status = "trained";
      for (const SweepCell& cell : grid.searches(v, trial)) {
        const CellState& state = states.at(cell.hash);
        if (!state.is_trained()) status = to_string(state.status);
        if (state.is_trained() && state.validation)
          values.push_back(metric_of(grid.sweep, *state.validation));
      }
      add_row(table, {{"variant", rows[v].variant->label},
                      key_fields(grid.keys, rows[v].variant->values),
                      chosen(grid, "trial", trial),
                      {"validation", known(mean(values)), "validation " + grid.sweep.metric},
                      {"status", found.ended && !found.metric
                                     ? fmt::format("ended after {} steps", *found.ended)
                                     : status},
                      {"chosen", rows[v].trial == trial ? "yes" : ""}});
    }
  std::vector<std::string> series = columns_beside("", grid.keys);
  if (series.empty()) series = {"variant"};
  add_chart_against(table, "Validation " + grid.sweep.metric, "trial", "validation", series);
  return table;
}

Table cells_table(const Grid& grid, const CellStates& states, const std::string& conditions,
                  const std::vector<Row>& rows) {
  Table table{.name = "cells", .title = "Cells: one run each"};
  for (const SweepCell& cell : grid.cells) {
    const SweepVariant& variant = grid.variants[cell.variant];
    if (cell.final && rows[cell.variant].trial != cell.trial) continue;
    const CellState& state = states.at(cell.hash);
    if (!cell.final && state.status == CellStatus::waiting &&
        !rows[cell.variant].search.trials[cell.trial].needed)
      continue;
    const CellRecord& record = state.record;
    const auto from = [](const auto& source, auto member) {
      return source ? Cell{(*source).*member} : Cell{};
    };
    const auto& summary = state.summary;
    add_row(
        table,
        {{"cell", cell.hash},
         {"variant", variant.label},
         key_fields(grid.keys, variant.values),
         chosen(grid, "trial", cell.trial),
         {"seed", cell.seed},
         {"phase", cell.final ? "final" : "search"},
         {"status", to_string(state.status)},
         {"reason", record.reason},
         {"step", from(summary, &Summary::step)},
         {"validation_loss", from(state.validation, &Score::loss), "validation loss"},
         {"validation_accuracy", from(state.validation, &Score::accuracy), "validation accuracy"},
         {"test_loss", from(state.test, &Score::loss), "test loss"},
         {"test_accuracy", from(state.test, &Score::accuracy), "test accuracy"},
         {"test_examples",
          state.test && state.test->examples > 0 ? Cell{state.test->examples} : Cell{},
          "test examples"},
         {"parameters", from(summary, &Summary::parameters)},
         // What follows depends on the machine and on interruptions.
         {"attempts", record.attempts},
         {"ms_per_step",
          summary && summary->step_seconds ? Cell{1000 * *summary->step_seconds} : Cell{},
          "ms a step", 3},
         {"peak_memory_mib", record.peak_memory > 0 ? Cell{mebibytes(record.peak_memory)} : Cell{},
          "peak memory (MiB)"},
         {"seconds", record.seconds, "", 3},
         {"host", summary ? Cell{summary->host} : Cell{}},
         {"threads", summary ? Cell{int64_t{summary->threads}} : Cell{}},
         {"jobs", record.jobs > 0 ? Cell{record.jobs} : Cell{}, "cells side by side"}});
    if (state.is_trained() && conditions_of(state) != conditions)
      for (const char* const column : {"ms_per_step", "seconds"})
        table.marked.insert({table.rows.size() - 1, table.column(column)});
  }
  if (!table.marked.empty())
    table.mark = "not measured as most cells were (" + conditions + "), so not compared";
  return table;
}

/// A segment's length; of "length 3 to 40" and "length 64, 8 pairs" in older files, by name.
int64_t length_of(const SegmentScore& segment) {
  int64_t least = 0, most = 0;
  if (segment.length > 0) return segment.length;
  const int read =
      std::sscanf(segment.name.c_str(), "length %" SCNd64 " to %" SCNd64, &least, &most);
  return read == 2 ? most : least;
}

/// Test scores on the segments of mixtures: what was learned at some lengths, tested at all.
/// Nothing if no cell has segments.
std::optional<Table> segments_table(const Grid& grid, const CellStates& states,
                                    const std::vector<Row>& rows) {
  Table table{.name = "segments", .title = fmt::format("Test {} by segment", grid.sweep.metric)};
  table.note = "Means over seeds, with 95 % intervals.";
  for (const Row& row : rows) {
    if (!row.trial) continue;
    struct Segment {
      std::string name;
      int64_t length;
      SeedScores scores{};
    };
    std::vector<Segment> segments;  // in order
    for (const SweepCell& cell : grid.finals(row.variant - grid.variants.data(), *row.trial))
      if (const auto& test = states.at(cell.hash).test)
        for (const SegmentScore& each : test->segments) {
          auto found = std::ranges::find(segments, each.name, &Segment::name);
          if (found == segments.end())
            found = segments.insert(segments.end(), {each.name, length_of(each)});
          found->scores[cell.seed] = grid.sweep.metric == "loss" ? each.loss : each.accuracy;
        }
    for (const auto& [name, length, scores] : segments) {
      const Estimate mean = mean_of(scores, grid.sweep.metric == "accuracy");
      add_row(table, {{"variant", row.variant->label},
                      key_fields(grid.keys, row.variant->values),
                      {"segment", name},
                      {"length", length > 0 ? Cell{length} : Cell{}},
                      {"seeds", mean.count},
                      score_fields(grid.sweep.metric, mean, "test " + grid.sweep.metric)});
    }
  }
  if (table.rows.empty()) return std::nullopt;
  add_chart_against(table, "Test " + grid.sweep.metric, "length", grid.sweep.metric,
                    columns_beside("", grid.keys));
  return table;
}

std::string summary_of(const Grid& grid, const CellStates& states, const std::vector<Row>& rows,
                       const Table& table, const Headline& said) {
  std::string text = fmt::format("{}", fmt::join(said.sentences, " "));
  int64_t tests = 0, significant = 0;
  for (const auto& row : table.rows)
    if (const auto* const p = std::get_if<double>(&row[table.column("p")])) {
      ++tests;
      significant += *p < significance;
    }
  if (tests > 0)
    text += fmt::format(" {} of {} differ from their baseline (p < {}).", significant, tests,
                        significance);
  std::vector<std::string> edges;
  for (const Row& row : rows) {
    if (!row.trial || grid.trials.size() < 3) continue;
    const auto is_known = [&](size_t trial) {
      return trial < grid.trials.size() &&
             (row.search.trials[trial].needed || row.search.trials[trial].metric);
    };
    const std::optional<double> best = row.search.trials[*row.trial].metric;
    if (grid.sweep.metric == "accuracy" && best >= 1) continue;
    if (!is_known(*row.trial - 1) || !is_known(*row.trial + 1)) edges.push_back(row.variant->label);
  }
  if (!edges.empty())
    text += fmt::format(" The first or last value of {} was best for: {}; others may be better.",
                        grid.search_key, listed(edges));
  const CellCounts counts = count_cells(grid, states);
  for (const auto& [number, what] :
       {std::pair{counts.failed, "failed"}, {counts.diverged, "diverged"}})
    if (number > 0) text += fmt::format(" {} of {} cells {}.", number, counts.cells, what);
  return text;
}

/// Returns the task of all cells; empty if it is an axis, which the cells name.
std::string only_task(const Grid& grid) {
  if (std::ranges::find(grid.keys, "data.task") != grid.keys.end()) return "";
  return std::get<std::string>(
      Config::parse(grid.cells.front().config, grid.sweep.name).given().at("data.task"));
}

}  // namespace

Results sweep_results(const Grid& grid, const CellStates& states, const fs::path& directory,
                      const std::string& command) {
  const std::string conditions = usual_conditions(states);
  std::vector<Row> rows;
  for (size_t v = 0; v < grid.variants.size(); ++v)
    rows.push_back(row_of(grid, v, states, conditions, directory));
  Results results{.kind = "ablate", .title = grid.sweep.title, .task = only_task(grid)};
  add_origin(results, command);
  const Headline said = headline_of(grid.sweep, states, rows);
  results.tables.push_back(variants_table(grid, states, rows, said.best));
  results.summary = summary_of(grid, states, rows, results.tables.front(), said);
  for (const auto& [hash, state] : states)
    if (state.status == CellStatus::damaged)
      results.summary += fmt::format(" Cell {} is not counted, which may change the best: {}.",
                                     hash, state.record.reason);
  if (grid.sweep.search) results.tables.push_back(search_table(grid, states, rows));
  if (auto segments = segments_table(grid, states, rows))
    results.tables.push_back(std::move(*segments));
  results.tables.push_back(cells_table(grid, states, conditions, rows));
  std::set<size_t> elsewhere;
  for (const auto& [row, column] : results.tables.back().marked) elsewhere.insert(row);
  if (!elsewhere.empty())
    results.tables.front().note +=
        fmt::format(" Times are those of the cells measured alike ({}), not of {} other cells.",
                    conditions, elsewhere.size());
  return results;
}

void write_results(const Results& results, const fs::path& directory) {
  data::write_file_durably(directory / "results.json", to_json(results));
  data::write_file_durably(directory / "results.csv", to_csv(results.table("variants")));
  data::write_file_durably(directory / "cells.csv", to_csv(results.table("cells")));
}

}  // namespace longhand::train

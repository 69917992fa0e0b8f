#include "longhand/train/lab/report/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "longhand/core/statistics.h"
#include "longhand/train/lab/columns.h"

namespace longhand::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Options that distinguish repetitions or reporting, but not variants.
const std::set<std::string> incidental = {
    "train.seed",           "data.seed",        "train.log_every",        "train.eval_every",
    "train.eval_batches",   "train.keep_every", "train.checkpoint_every", "train.recompute",
    "train.eval_batch_size"};

const std::set<std::string> ended = {"finished", "early", "trained", "halved"};

/// Returns "k" for "attention.k".
std::string short_name(const std::string& key) { return key.substr(key.find('.') + 1); }

Cell positive(int64_t value) { return value > 0 ? Cell{value} : Cell{}; }

/// Returns text such as "2 finished, 1 running".
std::string counted(const std::map<std::string, size_t>& counts) {
  std::vector<std::string> out;
  for (const auto& [what, count] : counts) out.push_back(fmt::format("{} {}", count, what));
  return comma_list(out);
}

std::string attention_of(const ReportedRun& run) {
  if (run.record.summary && !run.record.summary->attention.empty())
    return run.record.summary->attention;
  const auto type = run.options.find("attention.type");
  return type == run.options.end() ? "unknown" : plain_text(type->second);
}

/// The runs of a variant at a task. As a contender, it has the same name at each task.
struct Group : Contender {
  std::string label{};
  std::vector<size_t> runs{};
  Estimate score{nan, nan, nan, 0};
  size_t task = 0;
};

double value_of(const Metric& metric, const Score& score) {
  if (metric.is_accuracy()) return score.accuracy;
  return metric.name == "loss" ? score.loss : score.loss / std::numbers::ln2;
}

double seconds_of(const ReportedRun& run) {
  for (const Record& record : std::views::reverse(run.record.metrics))
    if (record.seconds) return *record.seconds;
  return run.record.summary ? run.record.summary->seconds : nan;
}
double speed_of(const ReportedRun& run) {
  for (const Record& record : std::views::reverse(run.record.metrics))
    if (record.split == "train") return record.tokens_per_second;
  return nan;
}
double memory_of(const ReportedRun& run) {
  int64_t bytes = run.record.summary ? run.record.summary->peak_memory : 0;
  for (const Record& record : run.record.metrics) bytes = std::max(bytes, record.peak_memory);
  return bytes > 0 ? static_cast<double>(bytes) / (1 << 20) : nan;
}
int64_t step_of(const ReportedRun& run) {
  if (!run.record.metrics.empty()) return run.record.metrics.back().step;
  return run.record.summary ? run.record.summary->step : 0;
}

/// Fields of the measured costs; value(of) is a row's value.
template <class F>
RowField costs(F value) {
  return {{{"seconds", "time (s)", 3},
           {"tokens_per_second", "tokens/s", 3},
           {"peak_memory_mib", "peak memory (MiB)", 3}},
          {known(value(seconds_of)), known(value(speed_of)), known(value(memory_of))}};
}

/// Where a run was made.
RowField origin_of(const ReportedRun& run) {
  static const Summary none;
  const Summary& made = run.record.summary ? *run.record.summary : none;
  const auto commit = made.provenance.find("commit");
  std::vector<std::string> data;
  for (const auto& [split, hash] : made.data) data.push_back(split + " " + hash);
  RowField out{{{"version", "Longhand"},
                {"machine", "machine"},
                {"commit", "commit"},
                {"host", "host"},
                {"data", "data (XXH3-128 of the first examples)"}},
               {}};
  for (const std::string& text :
       {made.version, made.machine, commit == made.provenance.end() ? "" : commit->second,
        made.host, comma_list(data)})
    out.cells.push_back(text.empty() ? Cell{} : Cell{text});
  return out;
}

/// Excludes trials of a search, and damaged cells, about which nothing else is known.
bool is_compared(const ReportedRun& run) {
  return run.phase != "search" && (!run.options.empty() || run.status != "damaged");
}

class Comparison {
 public:
  explicit Comparison(const ReportInputs& inputs) : inputs_(inputs), runs_(inputs.runs) {}

  Board board() {
    find_differing();
    make_groups();
    find_tasks();
    score_groups();
    for (const TaskScores& task : tasks_) board_.tasks.push_back(task.name);
    board_.variant_of.resize(runs_.size());
    for (const Group& group : groups_) {
      for (const size_t run : group.runs) board_.variant_of[run] = board_.variants.size();
      board_.variants.push_back(group.label);
      board_.names.push_back(group.name);
      board_.task_of.push_back(group.task);
      board_.scores.push_back(group.scores);
    }
    make_leaderboard();
    summarise();
    make_matrix();
    add_charts();
    add_heuristics();
    make_runs();
    make_options();
    return std::move(board_);
  }

 private:
  auto compared() const { return runs_ | std::views::filter(is_compared); }

  /// Names sweeps without the directories common to all; no names for a single sweep.
  void name_sweeps() {
    std::set<std::string> paths;
    for (const ReportedRun& run : compared()) paths.insert(run.sweep);
    if (paths.size() < 2) return;
    paths.erase("");  // of runs that are not cells
    const std::string& first = *paths.begin();
    const auto same = std::ranges::mismatch(first, *paths.rbegin()).in1 - first.begin();
    const size_t common =
        first.substr(0, static_cast<size_t>(same)).rfind('/') + 1;  // npos + 1 = 0
    for (const std::string& path : paths) sweeps_[path] = path.substr(common);
  }

  /// Returns an option of a run, or an empty text if it is a setting that distinguishes it from no
  /// other run of the same variant at the same task.
  std::string option(const ReportedRun& run, const std::string& key) const {
    const bool idle = settings_.contains(key) && !distinguishing_.contains({identity(run), key});
    return idle ? "" : any_option(run, key);
  }

  /// With several sweeps, the sweep's name counts as an option.
  std::string any_option(const ReportedRun& run, const std::string& key) const {
    if (key != "sweep") return run.option(key);
    const auto found = sweeps_.find(run.sweep);
    return found == sweeps_.end() ? "" : found->second;
  }

  void find_differing() {
    name_sweeps();
    std::map<std::string, std::set<std::string>> values;
    for (const ReportedRun& run : compared())
      for (const auto& [key, value] : run.options)
        if (!incidental.contains(key)) values[key].insert(to_string(value));
    for (const char* const section : {"attention.", "model.", "data.", "optimizer.", "train."})
      for (const auto& [key, distinct] : values)
        if (key.starts_with(section) && distinct.size() > 1) differing_.push_back(key);
    // Options that the task decides, that only one variant has, or with a different default there
    // or for such data, do not distinguish its runs.
    std::erase_if(differing_, [&](const std::string& key) {
      return key.starts_with("data.") && key != "data.task" &&
             follows(key, [](const ReportedRun& run) { return run.option("data.task"); });
    });
    const std::vector<std::string> all = differing_;
    std::erase_if(differing_, [&](const std::string& key) {
      return key.starts_with("attention.") && key != "attention.type" &&
             follows(key, [&](const ReportedRun& run) {
               std::string type = attention_of(run);
               for (const std::string& each : all)
                 if (each.starts_with("data.")) type += '\n' + run.option(each);
               return type;
             });
    });
    // The data's requirements on the model follow from the data.
    if (std::ranges::any_of(differing_,
                            [](const std::string& key) { return key.starts_with("data."); }))
      std::erase_if(differing_, [](const std::string& key) {
        return key == "model.max_length" || key == "model.vocabulary" || key == "model.classes" ||
               key == "model.per_token" || key == "model.targets";
      });
    // The result of a variant's search is a column, but not part of its name.
    std::map<std::pair<std::string, std::string>, std::string> of_variant;
    for (const ReportedRun& run : runs_)
      for (const std::string& key : differing_)
        if (!run.variant.empty() &&
            of_variant.try_emplace({run.sweep + '\n' + run.variant, key}, run.option(key))
                    .first->second != run.option(key))
          searched_.insert(key);
    // The variant's name comes first.
    std::ranges::stable_partition(differing_,
                                  [](const std::string& key) { return key == "attention.type"; });
    find_settings();
  }

  /// Returns the task and the variant of a run as far as options tell that are no settings.
  std::string identity(const ReportedRun& run) const {
    std::string out = attention_of(run);
    for (const std::string& key : differing_)
      if (!settings_.contains(key) && !searched_.contains(key)) out += '\n' + run.option(key);
    return out;
  }

  /// Finds what distinguishes sweeps, but nothing within one: options that follow from the task and
  /// the type of attention there, and the sweep's name.
  void find_settings() {
    if (sweeps_.empty()) return;
    const auto within = [&](const ReportedRun& run) {
      std::string out = run.sweep + '\n' + attention_of(run);
      for (const std::string& key : differing_)
        if (key.starts_with("data.")) out += '\n' + run.option(key);
      return out;
    };
    for (const std::string& key : differing_)
      if (!key.starts_with("data.") && key != "attention.type" && !searched_.contains(key) &&
          follows(key, within))
        settings_.insert(key);
    differing_.push_back("sweep");
    settings_.insert("sweep");
    std::map<std::pair<std::string, std::string>, std::set<std::string>> values;
    for (const ReportedRun& run : compared())
      for (const std::string own = identity(run); const std::string& key : settings_)
        values[{own, key}].insert(any_option(run, key));
    std::set<std::string> needed;
    for (const auto& [at, distinct] : values)
      if (distinct.size() > 1) {
        distinguishing_.insert(at);
        needed.insert(at.second);
      }
    std::erase_if(differing_, [&](const std::string& key) {
      return settings_.contains(key) && !needed.contains(key);
    });
  }

  /// Returns whether all runs with equal `from` have the same value of an option.
  template <class F>
  bool follows(const std::string& key, F from) const {
    std::map<std::string, std::string> values;
    for (const ReportedRun& run : compared())
      if (values.try_emplace(from(run), run.option(key)).first->second != run.option(key))
        return false;
    return values.size() > 1;
  }

  void make_groups() {
    std::map<std::string, size_t> by_key;
    for (size_t i = 0; i < runs_.size(); ++i) {
      const ReportedRun& run = runs_[i];
      if (!is_compared(run)) continue;
      const std::string attention = attention_of(run);
      std::string key = run.variant + "\n" + attention;
      for (const std::string& each : differing_)
        key += fmt::format("\n{}={}", short_name(each), option(run, each));
      const auto [at, added] = by_key.try_emplace(key, groups_.size());
      if (added) groups_.emplace_back().label = run.variant.empty() ? attention : run.variant;
      groups_[at->second].runs.push_back(i);
    }
    make_labels_unique();
  }

  /// Finds the tasks, in the order of their first runs, and variant names valid at each of them.
  void find_tasks() {
    std::vector<std::map<std::string, std::string>> rows(groups_.size());
    std::vector<std::string> labels;
    for (size_t g = 0; g < groups_.size(); ++g) {
      labels.push_back(groups_[g].label);
      const ReportedRun& run = runs_[groups_[g].runs[0]];
      rows[g]["attention.type"] = attention_of(run);
      for (const std::string& key : differing_)
        if (key != "attention.type" && !searched_.contains(key)) rows[g][key] = option(run, key);
    }
    const RowNames names = row_names(rows, labels);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const auto found = std::ranges::find(tasks_, names.task[g], &TaskScores::name);
      groups_[g].task = static_cast<size_t>(found - tasks_.begin());
      if (found == tasks_.end()) tasks_.push_back({names.task[g]});
      groups_[g].name = names.variant[g];
      groups_[g].family = names.family[g];
    }
  }

  /// Determines each task's metric, then its groups' scores and order.
  void score_groups() {
    for (size_t t = 0; t < tasks_.size(); ++t) {
      bool any = false, bits = true, loss = true;
      Metric& metric = tasks_[t].metric;
      for (const Group& group : groups_)
        for (const size_t r : group.runs) {
          if (group.task != t) continue;
          const ReportedRun& run = runs_[r];
          metric.test = metric.test || run.test;
          // Numbers have no accuracy.
          loss = loss && (run.metric == "loss" || run.option("model.targets") == "numbers");
          for (const Record& record : run.record.metrics) {
            any = true;
            bits = bits && record.bits_per_byte;
          }
        }
      if (any && bits)
        metric.name = "bits per byte";
      else if (loss)
        metric.name = "loss";
    }
    if (!tasks_.empty()) common_ = tasks_[0].metric;
    for (const TaskScores& task : tasks_) {
      common_.test = common_.test || task.metric.test;
      if (task.metric.name != common_.name) common_.name = "score";
    }
    for (Group& group : groups_) {
      for (const size_t run : group.runs) {
        const std::optional<Score>& score = scored(group, runs_[run]);
        if (!score || runs_[run].has_failed()) continue;
        if (const double value = value_of(metric_of(group), *score); std::isfinite(value)) {
          group.scores[runs_[run].seed] = value;
          group.examples = score->examples;
        }
      }
      if (!group.scores.empty())
        group.score = mean_of(group.scores, metric_of(group).is_accuracy(), group.examples);
      group.validation = mean(group, [&](const ReportedRun& run) {
        return run.validation ? value_of(metric_of(group), *run.validation) : nan;
      });
    }
    std::ranges::stable_sort(groups_, [&](const Group& a, const Group& b) {
      if (a.task != b.task) return a.task < b.task;
      if (std::isnan(a.score.mean) || std::isnan(b.score.mean)) return !std::isnan(a.score.mean);
      return metric_of(a).better(a.score.mean, b.score.mean);
    });
  }

  /// Adds options to equal labels until they differ.
  void make_labels_unique() {
    for (const std::string& key : differing_) {
      std::map<std::string, std::set<std::string>> values;
      for (const Group& group : groups_)
        values[group.label].insert(option(runs_[group.runs[0]], key));
      for (Group& group : groups_) {
        const std::string value = option(runs_[group.runs[0]], key);
        if (values[group.label].size() > 1 && !value.empty())
          group.label += fmt::format(" {}={}", short_name(key), value);
      }
    }
  }

  const Metric& metric_of(const Group& group) const { return tasks_[group.task].metric; }

  const std::optional<Score>& scored(const Group& group, const ReportedRun& run) const {
    return metric_of(group).test ? run.test : run.validation;
  }

  /// Returns the mean over a group's runs that have the value.
  template <class F>
  double mean(const Group& group, F value_of) const {
    double sum = 0;
    int64_t count = 0;
    for (const size_t run : group.runs) {
      const double value = runs_[run].has_failed() ? nan : value_of(runs_[run]);
      if (!std::isfinite(value)) continue;
      sum += value;
      ++count;
    }
    return count == 0 ? nan : sum / static_cast<double>(count);
  }

  std::string status_of(const Group& group) const {
    std::map<std::string, size_t> counts;
    for (const size_t run : group.runs) ++counts[runs_[run].status];
    return counts.size() == 1 ? counts.begin()->first : counted(counts);
  }

  /// Fields of the options that differ.
  RowField options(const ReportedRun& run) const {
    RowField out;
    for (const std::string& key : differing_) {
      const auto found = run.options.find(key);
      out.columns.push_back({column_name(key), searched_.contains(key) ? key + ", chosen" : key});
      const std::string text = option(run, key);
      out.cells.push_back(text.empty()                 ? Cell{}
                          : found != run.options.end() ? option_cell(found->second, text)
                                                       : Cell{text});
    }
    return out;
  }

  void add_variant(const Group& group, Table& table) const {
    int64_t parameters = 0, state = 0;
    for (const size_t run : group.runs)
      if (const auto& summary = runs_[run].record.summary) {
        parameters = summary->parameters;
        state = summary->state_bytes;
      }
    const double loss = mean(group, [&](const ReportedRun& run) {
      return scored(group, run) ? scored(group, run)->loss : nan;
    });
    const double steps =
        mean(group, [](const ReportedRun& run) { return static_cast<double>(step_of(run)); });
    add_row(table,
            {{"variant", group.label},
             score_fields("score", group.score, common_.heading()),
             {"seeds", group.score.count},
             {"status", status_of(group)},
             common_.name != "score" ? RowField()
                                     : RowField("metric", metric_of(group).heading(), "score is"),
             options(runs_[group.runs[0]]),
             !common_.test
                 ? RowField()
                 : RowField("validation", known(group.validation), "validation " + common_.name),
             common_.name == "loss"
                 ? RowField()
                 : RowField("loss", known(loss), common_.test ? "test loss" : "validation loss"),
             {"parameters", positive(parameters)},
             {"state_bytes", positive(state), "state (bytes)"},
             {"steps", steps > 0 ? Cell{int64_t{std::llround(steps)}} : Cell{}},
             costs([&](auto of) { return mean(group, of); })});
  }

  void make_leaderboard() {
    Table& table = board_.leaderboard;
    table.name = "leaderboard";
    table.title = "Leaderboard";
    for (const Group& group : groups_) add_variant(group, table);
    if (!groups_.empty() || runs_.empty()) return;
    tasks_.emplace_back();
    Group first;
    first.runs = {0};
    add_variant(first, table);  // only for the columns
    table.rows.clear();
  }

  /// Adds rows of the "heuristics" tables of analyses, which have columns predictor and accuracy.
  void add_heuristics() {
    if (!common_.is_accuracy() || groups_.empty()) return;
    Table& board = board_.leaderboard;
    for (const auto& [path, results] : inputs_.results) {
      if (results.kind.find("heuristic") == std::string::npos) continue;
      for (const Table& table : results.tables) {
        if (table.name != "heuristics" || !table.find("predictor") || !table.find("accuracy"))
          continue;
        for (const auto& from : table.rows) {
          const std::string name = to_text(from[table.column("predictor")]);
          if (name.ends_with(" model")) continue;  // compared with the heuristics
          std::vector<Cell> row(board.columns.size());
          row[0] = "heuristic: " + name;
          for (const auto& [to, column] :
               {std::pair{"score", "accuracy"}, {"low", "accuracy_low"}, {"high", "accuracy_high"}})
            if (const auto found = table.find(column)) row[board.column(to)] = from[*found];
          for (size_t i = 0; i < table.columns.size(); ++i)  // of the options that differ
            for (const std::string& key : differing_)
              if (const std::string to = column_name(key);
                  to == table.columns[i].name || to == "data_" + table.columns[i].name)
                row[board.column(to)] = from[i];
          row[board.column("status")] = table.title;  // with the split
          board.rows.push_back(std::move(row));
        }
        break;
      }
    }
  }

  void add_charts() {
    Table& table = board_.leaderboard;
    std::set<std::string> drawn;  // by the tables of a sweep
    for (const auto& [path, results] : inputs_.results)
      if (results.kind == "ablate")
        for (const Table& each : results.tables)
          for (const Chart& chart : each.charts) drawn.insert(chart.x);
    const std::string title = capital(common_.heading());
    std::vector<std::string> keys = differing_;
    std::erase_if(keys, [&](const std::string& key) {
      return searched_.contains(key) || settings_.contains(key);
    });
    for (const std::string& key : keys)
      if (const std::string x = column_name(key); !drawn.contains(x))
        add_chart_against(table, title, x, "score", columns_beside(key, keys));
    for (const char* const cost : {"state_bytes", "parameters", "seconds"})
      if (!drawn.contains(cost)) add_chart_against(table, title, cost, "score", {"variant"});
  }

  /// Fields of the scores of a run on a split.
  RowField scores(const std::string& split, const Metric& metric,
                  const std::optional<Score>& score) const {
    return {{{split, split + " " + common_.name}, {split + "_loss", split + " loss"}},
            {known(score ? value_of(metric, *score) : nan), known(score ? score->loss : nan)}};
  }

  void make_runs() {
    Table& table = board_.runs;
    table.name = "runs";
    table.title = "Runs";
    if (runs_.empty()) return;
    const bool phases = std::ranges::any_of(
        runs_, [&](const ReportedRun& run) { return run.phase != runs_.front().phase; });
    std::vector<size_t> order(runs_.size());  // by variant, trials of a search last
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t run) {
      return std::pair(board_.variant_of[run].value_or(groups_.size()), runs_[run].seed);
    });
    for (const size_t index : order) {
      const ReportedRun& run = runs_[index];
      const auto variant = board_.variant_of[index];
      const auto& summary = run.record.summary;
      const Metric& metric = variant ? metric_of(groups_[*variant]) : common_;
      add_row(
          table,
          {{"run", run.record.name},
           {"variant", variant ? groups_[*variant].label : run.variant},
           phases ? RowField("phase", run.phase) : RowField(),
           options(run),
           {"seed", run.seed},
           {"status", run.reason.empty() ? run.status : run.status + ": " + run.reason},
           {"step", positive(step_of(run))},
           scores("validation", metric, run.validation),
           common_.test ? scores("test", metric, run.test) : RowField(),
           costs([&](auto of) { return of(run); }),
           {"threads", summary ? Cell{int64_t{summary->threads}} : Cell{}},
           {"checkpoint",
            run.checkpoint.empty() ? Cell{} : Cell{run.checkpoint + " " + run.checkpoint_digest},
            "checkpoint (XXH3-128)"},
           origin_of(run),
           {"command",
            run.record.config.empty()
                ? Cell{}
                : Cell{fmt::format("longhand train {}/config.toml --out NEW", run.record.name)},
            "command that repeats it"}});
    }
    // An origin common to all runs is stated once.
    const std::vector<Column> origins = origin_of(runs_[0]).columns;
    board_.runs = without_columns(table, [&](size_t c) {
      const Column& column = table.columns[c];
      const Cell& first = table.rows[0][c];
      if (std::ranges::find(origins, column.name, &Column::name) == origins.end() ||
          std::ranges::any_of(table.rows, [&](const auto& row) { return row[c] != first; }))
        return false;
      if (const auto* const text = std::get_if<std::string>(&first))
        board_.provenance.push_back(column.heading + ": " + *text);
      return true;
    });
  }

  void make_options() {
    std::map<std::string, std::map<std::string, size_t>> counts;  // of values, by option
    size_t configured = 0;
    for (const ReportedRun& run : runs_) {
      if (run.record.config.empty()) continue;
      ++configured;
      for (const auto& [key, value] : run.options) ++counts[key][to_string(value)];
    }
    for (const auto& [key, values] : counts)
      if (values.size() == 1 && values.begin()->second == configured)
        board_.shared[key] = values.begin()->first;
    for (const Group& group : groups_) {
      auto& own = board_.own.emplace_back();
      for (const size_t run : group.runs)
        for (const auto& [key, value] : runs_[run].options)
          if (!board_.shared.contains(key) && key != "train.seed" && key != "data.seed")
            own.try_emplace(key, to_string(value));
    }
  }

  /// Makes a table of tasks against variants, if there are several tasks.
  void make_matrix() {
    if (tasks_.size() < 2) return;
    Table& table = board_.matrix;
    table.name = "matrix";
    table.title = "Tasks and variants";
    // Variants with all tasks first, by their mean over them.
    const bool tuned = !left_out_.empty();
    const auto name_of = [&](size_t g) { return tuned ? groups_[g].family : groups_[g].name; };
    std::map<std::string, std::pair<int64_t, double>> ranks;
    std::vector<size_t> order;
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (left_out_.contains(g)) continue;
      order.push_back(g);
      const Group& group = groups_[g];
      if (auto& [count, sum] = ranks[name_of(g)]; !std::isnan(group.score.mean)) {
        --count;
        sum += metric_of(group).is_accuracy() ? -group.score.mean : group.score.mean;
      }
    }
    std::ranges::stable_sort(order, {},
                             [&](size_t g) { return std::tuple(ranks[name_of(g)], name_of(g)); });
    for (const size_t g : order) {
      const Group& group = groups_[g];
      const ReportedRun& run = runs_[group.runs[0]];
      const auto rate = run.options.find("optimizer.lr");
      add_row(table,
              {{"task", tasks_[group.task].name},
               {"variant", name_of(g)},
               !tuned ? RowField()
                      : RowField("chosen",
                                 rate == run.options.end() ? Cell{} : option_cell(rate->second, ""),
                                 "learning rate, chosen"),
               {"metric", metric_of(group).heading()},
               score_fields("score", group.score, ""),
               {"seeds", group.score.count}});
    }
    table.charts.push_back({.title = capital(common_.heading()) + " by task and variant",
                            .x = "task",
                            .y = "variant",
                            .series = {"metric"},
                            .low = "low",
                            .high = "high",
                            .colour = "score"});
  }

  void summarise() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      groups_[g].row = g;
      tasks_[groups_[g].task].contenders.push_back(groups_[g]);
    }
    const Headline said = headline(tasks_);
    board_.summary = said.sentences;
    left_out_ = said.left_out;
    Table& table = board_.leaderboard;
    for (const size_t row : said.best) table.best.insert({row, table.column("score")});
    std::map<std::string, size_t> others;
    for (const ReportedRun& run : runs_)
      if (!ended.contains(run.status)) ++others[run.status];
    if (inputs_.waiting > 0) others["waiting"] += inputs_.waiting;
    if (others.empty()) return;
    size_t count = 0;
    for (const auto& [status, number] : others) count += number;
    board_.summary.push_back(fmt::format("{} of {} runs did not finish: {}.", count,
                                         runs_.size() + inputs_.waiting, counted(others)));
  }

  const ReportInputs& inputs_;
  const std::vector<ReportedRun>& runs_;
  std::map<std::string, std::string> sweeps_;  // sweep names, by path
  std::vector<std::string> differing_;         // options, including "sweep"
  std::set<std::string> searched_;             // of these, those that a search chose
  std::set<std::string> settings_;             // of these, those of sweeps; see find_settings()
  std::set<std::pair<std::string, std::string>> distinguishing_;  // identity() and such a setting
  std::vector<TaskScores> tasks_;
  Metric common_;  // the metric of all tasks; "score" if they differ
  std::vector<Group> groups_;
  std::set<size_t> left_out_;  // of these: Headline::left_out
  Board board_;
};

}  // namespace

Board compare(const ReportInputs& inputs) { return Comparison(inputs).board(); }

}  // namespace longhand::train

#include "longhand/train/lab/board.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "longhand/core/statistics.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/lab/seeds.h"
#include "longhand/train/results/rows.h"

namespace longhand::train {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// Options that distinguish repetitions, or what a run reports, but not variants.
const std::set<std::string> incidental = {
    "train.seed",           "data.seed",        "train.log_every",        "train.eval_every",
    "train.eval_batches",   "train.keep_every", "train.checkpoint_every", "train.recompute",
    "train.eval_batch_size"};

/// Statuses of runs whose numbers do not count.
const std::set<std::string> failures = {"diverged", "crashed", "failed", "out of memory",
                                        "out_of_memory"};
const std::set<std::string> ended = {"finished", "early", "trained"};

/// "k" of "attention.k".
std::string short_name(const std::string& key) { return key.substr(key.find('.') + 1); }

Cell positive(int64_t value) { return value > 0 ? Cell{value} : Cell{}; }

/// "2 finished, 1 running"
std::string counted(const std::map<std::string, size_t>& counts) {
  std::vector<std::string> out;
  for (const auto& [what, count] : counts) out.push_back(fmt::format("{} {}", count, what));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string attention_of(const ReportedRun& run) {
  if (run.record.summary && !run.record.summary->attention.empty())
    return run.record.summary->attention;
  const auto type = run.options.find("attention.type");
  return type == run.options.end() ? "unknown" : plain_text(type->second);
}

struct Metric {
  bool bits = false;  // bits per byte, of which less is better; else the accuracy
  bool test = false;

  double operator()(const Score& score) const {
    return bits ? score.loss / std::numbers::ln2 : score.accuracy;
  }
  bool better(double a, double b) const { return bits ? a < b : a > b; }
  const char* name() const { return bits ? "bits per byte" : "accuracy"; }
  std::string heading() const { return std::string(test ? "test " : "validation ") + name(); }
};

struct Group {
  std::string label;
  std::vector<size_t> runs{};
  SeedScores scores{};
  Estimate score{nan, nan, nan, 0};
  std::string problem{};  // the options of its data that differ
};

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
  return run.record.metrics.empty() ? 0 : run.record.metrics.back().step;
}

/// The measured costs, where value(of) is that of a row.
template <class F>
RowField costs(F value) {
  return {{{"seconds", "time (s)", 3},
           {"tokens_per_second", "tokens/s", 3},
           {"peak_memory_mib", "peak memory (MiB)", 3}},
          {known(value(seconds_of)), known(value(speed_of)), known(value(memory_of))}};
}

/// Where a run was made.
struct Origin {
  Column column;
  std::string (*in)(const Summary& summary);

  std::string of(const ReportedRun& run) const {
    return run.record.summary ? in(*run.record.summary) : "";
  }
};
const std::vector<Origin> origins = {
    {{"version", "Longhand"}, [](const Summary& s) { return s.version; }},
    {{"machine", "machine"}, [](const Summary& s) { return s.machine; }},
    {{"host", "host"}, [](const Summary& s) { return s.host; }},
    {{"data", "data (XXH3-128 of the first examples)"}, [](const Summary& s) {
       std::vector<std::string> out;
       for (const auto& [split, hash] : s.data) out.push_back(split + " " + hash);
       return fmt::format("{}", fmt::join(out, ", "));
     }}};

class Comparison {
 public:
  explicit Comparison(const ReportInputs& inputs) : inputs_(inputs), runs_(inputs.runs) {}

  Board board() {
    find_metric();
    find_differing();
    make_groups();
    for (const Group& group : groups_) board_.variants.push_back(group.label);
    board_.variant_of.assign(runs_.size(), std::nullopt);
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const size_t run : groups_[g].runs) board_.variant_of[run] = g;
    make_leaderboard();
    add_charts();
    add_heuristics();
    make_runs();
    make_options();
    summarise();
    return std::move(board_);
  }

 private:
  bool compared(size_t run) const { return runs_[run].phase != "search"; }

  void find_metric() {
    bool any = false, bits = true;
    for (const ReportedRun& run : runs_) {
      metric_.test = metric_.test || run.test;
      for (const Record& record : run.record.metrics) {
        any = true;
        bits = bits && record.bits_per_byte;
      }
    }
    metric_.bits = any && bits;
  }

  void find_differing() {
    std::map<std::string, std::set<std::string>> values;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (compared(i))
        for (const auto& [key, value] : runs_[i].options)
          if (!incidental.contains(key)) values[key].insert(to_string(value));
    for (const char* const section : {"attention.", "model.", "data.", "optimizer.", "train."})
      for (const auto& [key, distinct] : values)
        if (key.starts_with(section) && distinct.size() > 1) differing_.push_back(key);
    // Options of one variant alone, or with another default there, do not tell its runs apart.
    std::erase_if(differing_, [&](const std::string& key) {
      return key.starts_with("attention.") && key != "attention.type" && follows_from_type(key);
    });
    // What the data requires of the model follows from the data.
    if (std::any_of(differing_.begin(), differing_.end(),
                    [](const std::string& key) { return key.starts_with("data."); }))
      std::erase_if(differing_, [](const std::string& key) {
        return key == "model.max_length" || key == "model.vocabulary" || key == "model.classes" ||
               key == "model.per_token";
      });
    // The variant's name first.
    std::stable_partition(differing_.begin(), differing_.end(),
                          [](const std::string& key) { return key == "attention.type"; });
  }

  /// Whether all runs of the same attention.type have the same value of an option.
  bool follows_from_type(const std::string& key) const {
    std::map<std::string, std::string> values;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (compared(i) &&
          values.try_emplace(attention_of(runs_[i]), runs_[i].option(key)).first->second !=
              runs_[i].option(key))
        return false;
    return values.size() > 1;
  }

  std::string key_of(const ReportedRun& run, std::string_view section = "") const {
    std::string key = section.empty() ? run.variant + "\n" + attention_of(run) : "";
    for (const std::string& option : differing_)
      if (option.starts_with(section))
        key +=
            fmt::format("{}{}={}", key.empty() ? "" : "\n", short_name(option), run.option(option));
    return key;
  }

  void make_groups() {
    std::map<std::string, size_t> by_key;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (!compared(i)) continue;
      const auto [at, added] = by_key.try_emplace(key_of(runs_[i]), groups_.size());
      if (added) {
        groups_.push_back(
            {.label = runs_[i].variant.empty() ? attention_of(runs_[i]) : runs_[i].variant});
        groups_.back().problem = key_of(runs_[i], "data.");
        std::replace(groups_.back().problem.begin(), groups_.back().problem.end(), '\n', ' ');
      }
      groups_[at->second].runs.push_back(i);
    }
    make_labels_unique();
    for (Group& group : groups_) {
      std::vector<double> values;
      for (const size_t run : group.runs)
        if (const auto value = score_of(runs_[run])) {
          values.push_back(*value);
          group.scores[runs_[run].seed] = *value;
        }
      if (!values.empty())
        group.score = metric_.bits ? estimate(values) : accuracy_of_seeds(values);
    }
    std::stable_sort(groups_.begin(), groups_.end(), [&](const Group& a, const Group& b) {
      if (a.problem != b.problem) return a.problem < b.problem;
      if (std::isnan(a.score.mean) || std::isnan(b.score.mean)) return !std::isnan(a.score.mean);
      return metric_.better(a.score.mean, b.score.mean);
    });
  }

  /// Adds options to equal labels until they differ.
  void make_labels_unique() {
    for (const std::string& option : differing_) {
      std::map<std::string, std::set<std::string>> values;
      for (const Group& group : groups_)
        values[group.label].insert(runs_[group.runs[0]].option(option));
      for (Group& group : groups_) {
        const std::string value = runs_[group.runs[0]].option(option);
        if (values[group.label].size() > 1 && !value.empty())
          group.label += fmt::format(" {}={}", short_name(option), value);
      }
    }
  }

  const std::optional<Score>& scored(const ReportedRun& run) const {
    return metric_.test ? run.test : run.validation;
  }

  std::optional<double> score_of(const ReportedRun& run) const {
    if (!scored(run) || failures.contains(run.status)) return std::nullopt;
    const double value = metric_(*scored(run));
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  }

  /// The mean over the runs of a group that have the value.
  template <class F>
  double mean(const Group& group, F value_of) const {
    double sum = 0;
    int64_t count = 0;
    for (const size_t run : group.runs) {
      const double value = failures.contains(runs_[run].status) ? nan : value_of(runs_[run]);
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

  /// The options that differ.
  RowField options(const ReportedRun& run) const {
    RowField out;
    for (const std::string& key : differing_) {
      const auto found = run.options.find(key);
      out.columns.push_back({column_name(key), key});
      out.cells.push_back(found == run.options.end() ? Cell{}
                                                     : option_cell(found->second, run.option(key)));
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
    const double validation = mean(group, [&](const ReportedRun& run) {
      return run.validation ? metric_(*run.validation) : nan;
    });
    const double loss =
        mean(group, [&](const ReportedRun& run) { return scored(run) ? scored(run)->loss : nan; });
    const double steps =
        mean(group, [](const ReportedRun& run) { return static_cast<double>(step_of(run)); });
    add_row(table, {},
            {{"variant", group.label},
             {"score", known(group.score.mean), metric_.heading()},
             {"low", known(group.score.low), "95 % from"},
             {"high", known(group.score.high), "to"},
             {"seeds", group.score.count},
             options(runs_[group.runs[0]]),
             !metric_.test ? RowField()
                           : RowField("validation", known(validation),
                                      std::string("validation ") + metric_.name()),
             {"loss", known(loss), metric_.test ? "test loss" : "validation loss"},
             {"parameters", positive(parameters)},
             {"state_bytes", positive(state), "state (bytes)"},
             {"steps", std::isnan(steps) ? Cell{} : Cell{int64_t{std::llround(steps)}}},
             costs([&](auto of) { return mean(group, of); }),
             {"status", status_of(group)}});
  }

  void make_leaderboard() {
    Table& table = board_.leaderboard;
    table.name = "leaderboard";
    table.title = "Leaderboard";
    for (const Group& group : groups_) add_variant(group, table);
    if (!groups_.empty() || runs_.empty()) return;
    add_variant({.label = "", .runs = {0}}, table);  // for the columns alone
    table.rows.clear();
  }

  /// Rows of the tables "heuristics" of analyses, with their columns predictor and accuracy.
  void add_heuristics() {
    if (metric_.bits || groups_.empty()) return;
    Table& board = board_.leaderboard;
    for (const auto& [path, results] : inputs_.results) {
      if (results.kind.find("heuristic") == std::string::npos) continue;
      for (const Table& table : results.tables) {
        if (table.name != "heuristics" || !table.find("predictor") || !table.find("accuracy"))
          continue;
        for (const auto& from : table.rows) {
          const std::string name = to_text(from[table.column("predictor")]);
          if (name.ends_with(" model")) continue;  // what the heuristics are compared with
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
          row.back() = table.title;  // with the split
          board.rows.push_back(std::move(row));
        }
        break;
      }
    }
  }

  void add_charts() {
    Table& table = board_.leaderboard;
    std::string title = metric_.heading();
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    std::set<std::string> drawn;  // by the tables of a sweep
    for (const auto& [path, results] : inputs_.results)
      if (results.kind == "ablate")
        for (const Table& each : results.tables)
          for (const Chart& chart : each.charts) drawn.insert(chart.x);
    const Charted charted{title, "score", "low", "high"};
    for (const std::string& key : differing_)
      if (const std::string x = column_name(key); !drawn.contains(x))
        if (const auto series = columns_beside(key, differing_); has_lines(x, series))
          add_chart_against(x, series, charted, table);
    for (const char* const cost : {"state_bytes", "parameters", "seconds"}) {
      const std::set<double> values = numbers_in(table, cost);
      // Costs that are nearly equal explain nothing.
      if (values.empty() || (*values.begin() > 0 && *values.rbegin() / *values.begin() < 1.05))
        continue;
      if (!drawn.contains(cost)) add_chart_against(cost, {"variant"}, charted, table);
    }
  }

  /// Whether a curve against x has more than one point.
  bool has_lines(const std::string& x, const std::vector<std::string>& series) const {
    const Table& table = board_.leaderboard;
    std::set<std::string> curves;
    std::set<std::pair<std::string, double>> points;
    for (const auto& row : table.rows) {
      const auto value = number_in(row[table.column(x)]);
      if (!value || !std::isfinite(*value)) continue;
      std::string curve;
      for (const std::string& each : series) curve += to_text(row[table.column(each)]) + "\n";
      curves.insert(curve);
      points.emplace(curve, *value);
    }
    return points.size() > curves.size();
  }

  /// The scores of a run on a split.
  RowField scores(const std::string& split, const std::optional<Score>& score) const {
    RowField out;
    out.columns = {{split, split + " " + metric_.name()}, {split + "_loss", split + " loss"}};
    out.cells.resize(2);
    if (!score) return out;
    out.cells[0] = metric_(*score);
    out.cells[1] = score->loss;
    return out;
  }

  void make_runs() {
    Table& table = board_.runs;
    table.name = "runs";
    table.title = "Runs";
    if (runs_.empty()) return;
    const auto differs = [&](auto value_of) {
      return std::ranges::any_of(
          runs_, [&](const ReportedRun& run) { return value_of(run) != value_of(runs_.front()); });
    };
    const bool phases = differs([](const ReportedRun& run) { return run.phase; });
    std::vector<Origin> different;
    for (const Origin& origin : origins)
      if (differs([&](const ReportedRun& run) { return origin.of(run); }))
        different.push_back(origin);
      else if (const std::string value = origin.of(runs_.front()); !value.empty())
        board_.provenance.push_back(origin.column.heading + ": " + value);
    std::vector<size_t> order(runs_.size());  // by variant, trials of a search last
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t run) {
      return std::pair(board_.variant_of[run].value_or(groups_.size()), runs_[run].seed);
    });
    for (const size_t index : order) {
      const ReportedRun& run = runs_[index];
      const auto variant = board_.variant_of[index];
      const auto& summary = run.record.summary;
      RowField made;
      for (const Origin& origin : different) {
        const std::string value = origin.of(run);
        made.columns.push_back(origin.column);
        made.cells.push_back(value.empty() ? Cell{} : Cell{value});
      }
      add_row(
          table, {},
          {{"run", run.record.name},
           {"variant", variant ? groups_[*variant].label : run.variant},
           phases ? RowField("phase", run.phase) : RowField(),
           options(run),
           {"seed", run.seed},
           {"status", run.reason.empty() ? run.status : run.status + ": " + run.reason},
           {"step", positive(step_of(run))},
           scores("validation", run.validation),
           metric_.test ? scores("test", run.test) : RowField(),
           costs([&](auto of) { return of(run); }),
           {"threads", summary ? Cell{int64_t{summary->threads}} : Cell{}},
           {"checkpoint",
            run.checkpoint.empty() ? Cell{} : Cell{run.checkpoint + " " + run.checkpoint_digest},
            "checkpoint (XXH3-128)"},
           std::move(made),
           {"command",
            run.record.config.empty()
                ? Cell{}
                : Cell{fmt::format("longhand train {}/config.toml --out NEW", run.record.name)},
            "command that repeats it"}});
    }
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

  static std::string number(double value) { return fmt::format("{:.3g}", value); }

  static std::string interval(const Group& group) {
    const Estimate& score = group.score;
    if (score.count < 2) return " (1 seed)";
    if (std::isnan(score.low))
      return fmt::format(" ({})", without_interval(values_of(group.scores)));
    return fmt::format(" (95 % interval {} to {}, {} seeds)", number(score.low), number(score.high),
                       score.count);
  }

  /// Which of groups begin … end-1, of one problem, is best.
  void summarise(size_t begin, size_t end) {
    const Group& best = groups_[begin];
    const std::string where = best.problem.empty() ? std::string() : " at " + best.problem;
    size_t scored = begin;
    while (scored < end && !std::isnan(groups_[scored].score.mean)) ++scored;
    if (scored == begin) {
      board_.summary.push_back("No run" + where + " has been evaluated yet.");
      return;
    }
    const std::string reached =
        fmt::format("{} of {}{}", metric_.heading(), number(best.score.mean), interval(best));
    if (scored == begin + 1) {
      board_.summary.push_back(fmt::format("{} reaches a {}{}.", best.label, reached, where));
      return;
    }
    const Group& next = groups_[begin + 1];
    std::string text = fmt::format("{} is the best of {} variants{}, with a {}, {} {} {}",
                                   best.label, scored - begin, where, reached,
                                   number(std::abs(best.score.mean - next.score.mean)),
                                   metric_.bits ? "below" : "above", next.label);
    const Estimate difference = (metric_.bits ? paired_by_seed(next.scores, best.scores, false)
                                              : paired_by_seed(best.scores, next.scores, true))
                                    .difference;
    if (difference.count < 2) {
      text += ". With one seed in common, chance is not excluded: train more seeds.";
    } else if (std::isnan(difference.low)) {
      text +=
          ". So few seeds, of which some solve the task or which differ equally, give no "
          "interval: train more seeds.";
    } else {
      text += fmt::format(" (95 % interval of the difference, seed by seed: {} to {}). {}",
                          number(difference.low), number(difference.high),
                          difference.low > 0 ? "The interval excludes 0."
                                             : "The interval includes 0, so that their order may "
                                               "be chance.");
    }
    board_.summary.push_back(text);
  }

  void summarise() {
    constexpr size_t most = 4;
    size_t problems = 0;
    for (size_t begin = 0; begin < groups_.size();) {
      size_t end = begin;
      while (end < groups_.size() && groups_[end].problem == groups_[begin].problem) ++end;
      if (++problems <= most) summarise(begin, end);
      begin = end;
    }
    if (problems > most)
      board_.summary.push_back(fmt::format("The leaderboard has {} more tasks.", problems - most));
    std::map<std::string, size_t> others;
    for (const ReportedRun& run : runs_)
      if (!ended.contains(run.status)) ++others[run.status];
    if (others.empty()) return;
    size_t count = 0;
    for (const auto& [status, number] : others) count += number;
    board_.summary.push_back(
        fmt::format("{} of {} runs did not finish: {}.", count, runs_.size(), counted(others)));
  }

  const ReportInputs& inputs_;
  const std::vector<ReportedRun>& runs_;
  Metric metric_;
  std::vector<std::string> differing_;
  std::vector<Group> groups_;
  Board board_;
};

}  // namespace

Board compare(const ReportInputs& inputs) { return Comparison(inputs).board(); }

}  // namespace longhand::train

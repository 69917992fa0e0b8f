#include "longhand/train/lab/board.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

#include "longhand/core/statistics.h"

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

std::string column_name(std::string key) {
  std::replace(key.begin(), key.end(), '.', '_');
  return key;
}

Cell cell_of(double value) { return std::isnan(value) ? Cell{} : Cell{value}; }
Cell cell_of_count(int64_t value) { return value > 0 ? Cell{value} : Cell{}; }

Cell option_cell(const ReportedRun& run, const std::string& key) {
  const auto found = run.options.find(key);
  if (found == run.options.end()) return {};
  if (const auto* const i = std::get_if<int64_t>(&found->second)) return *i;
  if (const auto* const d = std::get_if<double>(&found->second)) return *d;
  return run.option(key);
}

std::string attention_of(const ReportedRun& run) {
  if (run.record.summary && !run.record.summary->attention.empty())
    return run.record.summary->attention;
  std::string out;
  for (const char c : run.option("attention.type"))  // ["window", "linear"] -> window+linear
    if (c == ',')
      out += '+';
    else if (std::string_view("[]\" ").find(c) == std::string_view::npos)
      out += c;
  return out.empty() ? "unknown" : out;
}

struct Metric {
  bool bits = false;  // bits per byte, of which less is better; else the accuracy
  bool test = false;

  double operator()(const Measured& measured) const {
    return bits ? measured.loss / std::numbers::ln2 : measured.accuracy;
  }
  bool better(double a, double b) const { return bits ? a < b : a > b; }
  const char* name() const { return bits ? "bits per byte" : "accuracy"; }
  std::string heading() const { return std::string(test ? "test " : "validation ") + name(); }
};

struct Group {
  std::string label;
  std::vector<size_t> runs{};
  std::map<int64_t, double> scores{};  // by seed
  Estimate score{nan, nan, nan, 0};
  std::string problem{};  // the options of its data that differ
};

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
    add_heuristics();
    add_charts();
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
        key += fmt::format("{}{}={}", key.empty() ? "" : "\n", option.substr(option.find('.') + 1),
                           run.option(option));
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
    for (Group& group : groups_) score(group);
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
          group.label += fmt::format(" {}={}", option.substr(option.find('.') + 1), value);
      }
    }
  }

  std::optional<double> score_of(const ReportedRun& run) const {
    const auto& measured = metric_.test ? run.test : run.validation;
    if (!measured || failures.contains(run.status)) return std::nullopt;
    const double value = metric_(*measured);
    return std::isfinite(value) ? std::optional(value) : std::nullopt;
  }

  void score(Group& group) const {
    std::vector<double> values;
    for (const size_t run : group.runs)
      if (const auto value = score_of(runs_[run])) {
        values.push_back(*value);
        group.scores[runs_[run].seed] = *value;
      }
    if (!values.empty()) group.score = metric_.bits ? estimate(values) : accuracy_of_seeds(values);
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

  static double seconds_of(const ReportedRun& run) {
    for (auto record = run.record.metrics.rbegin(); record != run.record.metrics.rend(); ++record)
      if (record->seconds) return *record->seconds;
    return run.record.summary ? run.record.summary->seconds : nan;
  }
  static double speed_of(const ReportedRun& run) {
    for (auto record = run.record.metrics.rbegin(); record != run.record.metrics.rend(); ++record)
      if (record->split == "train") return record->tokens_per_second;
    return nan;
  }
  static double memory_of(const ReportedRun& run) {
    int64_t bytes = run.record.summary ? run.record.summary->peak_memory : 0;
    for (const Record& record : run.record.metrics) bytes = std::max(bytes, record.peak_memory);
    return bytes > 0 ? static_cast<double>(bytes) / (1 << 20) : nan;
  }
  static int64_t step_of(const ReportedRun& run) {
    return run.record.metrics.empty() ? 0 : run.record.metrics.back().step;
  }

  std::string status_of(const Group& group) const {
    std::map<std::string, int64_t> counts;
    for (const size_t run : group.runs) ++counts[runs_[run].status];
    if (counts.size() == 1) return counts.begin()->first;
    std::string out;
    for (const auto& [status, count] : counts)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, status);
    return out;
  }

  void make_leaderboard() {
    Table& table = board_.leaderboard;
    table.name = "leaderboard";
    table.title = "Leaderboard";
    table.columns = {{"variant", ""},
                     {"score", metric_.heading()},
                     {"low", "95 % from"},
                     {"high", "to"},
                     {"seeds", ""}};
    for (const std::string& key : differing_) table.columns.push_back({column_name(key), key});
    if (metric_.test)
      table.columns.push_back({"validation", std::string("validation ") + metric_.name()});
    for (const Column& column :
         std::vector<Column>{{"loss", metric_.test ? "test loss" : "validation loss"},
                             {"parameters", ""},
                             {"state_bytes", "state (bytes)"},
                             {"steps", ""},
                             {"seconds", "time (s)", 3},
                             {"tokens_per_second", "tokens/s", 3},
                             {"peak_memory_mib", "peak memory (MiB)", 3},
                             {"status", ""}})
      table.columns.push_back(column);
    for (const Group& group : groups_) {
      const ReportedRun& first = runs_[group.runs[0]];
      auto& row = table.rows.emplace_back();
      row.emplace_back(group.label);
      for (const double value : {group.score.mean, group.score.low, group.score.high})
        row.push_back(cell_of(value));
      row.emplace_back(group.score.count);
      for (const std::string& key : differing_) row.push_back(option_cell(first, key));
      if (metric_.test)
        row.push_back(cell_of(mean(group, [&](const ReportedRun& run) {
          return run.validation ? metric_(*run.validation) : nan;
        })));
      row.push_back(cell_of(mean(group, [&](const ReportedRun& run) {
        const auto& measured = metric_.test ? run.test : run.validation;
        return measured ? measured->loss : nan;
      })));
      int64_t parameters = 0, state = 0;
      for (const size_t run : group.runs)
        if (const auto& summary = runs_[run].record.summary) {
          parameters = summary->parameters;
          state = summary->state_bytes;
        }
      row.push_back(cell_of_count(parameters));
      row.push_back(cell_of_count(state));
      const double steps =
          mean(group, [](const ReportedRun& run) { return static_cast<double>(step_of(run)); });
      row.push_back(std::isnan(steps) ? Cell{} : Cell{static_cast<int64_t>(std::llround(steps))});
      row.push_back(cell_of(mean(group, seconds_of)));
      row.push_back(cell_of(mean(group, speed_of)));
      row.push_back(cell_of(mean(group, memory_of)));
      row.emplace_back(status_of(group));
    }
  }

  /// Rows of the tables "heuristics" of analyses, with their columns predictor and accuracy.
  void add_heuristics() {
    if (metric_.bits || groups_.empty()) return;
    Table& board = board_.leaderboard;
    for (const auto& [path, results] : inputs_.results) {
      if (results.kind.find("heuristic") == std::string::npos) continue;
      for (const Table& table : results.tables) {
        const auto has = [&](const char* name) {
          return std::any_of(table.columns.begin(), table.columns.end(),
                             [&](const Column& column) { return column.name == name; });
        };
        if (table.name != "heuristics" || !has("predictor") || !has("accuracy")) continue;
        for (const auto& from : table.rows) {
          const std::string name = to_text(from[table.column("predictor")]);
          if (name.ends_with(" model")) continue;  // what the heuristics are compared with
          std::vector<Cell> row(board.columns.size());
          row[0] = "heuristic: " + name;
          row[board.column("score")] = from[table.column("accuracy")];
          for (const std::string end : {"low", "high"})
            if (has(("accuracy_" + end).c_str()))
              row[board.column(end)] = from[table.column("accuracy_" + end)];
          for (size_t i = 0; i < table.columns.size(); ++i)  // of the options that differ
            for (const std::string& key : differing_)
              if (table.columns[i].name == column_name(key) ||
                  "data_" + table.columns[i].name == column_name(key))
                row[board.column(column_name(key))] = from[i];
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
    const auto add = [&](const std::string& x, std::vector<std::string> series, bool connected) {
      const size_t column = table.column(x);
      double low = std::numeric_limits<double>::infinity(), high = -low;
      std::set<double> all;
      std::map<std::string, std::set<double>> by_series;
      for (size_t r = 0; r < groups_.size(); ++r) {
        const Cell& cell = table.rows[r][column];
        double value = nan;
        if (const auto* const i = std::get_if<int64_t>(&cell)) value = static_cast<double>(*i);
        if (const auto* const d = std::get_if<double>(&cell)) value = *d;
        if (std::holds_alternative<std::string>(cell)) return;
        if (!std::isfinite(value)) continue;
        low = std::min(low, value);
        high = std::max(high, value);
        std::string key;
        for (const std::string& each : series)
          key += to_text(table.rows[r][table.column(each)]) + "\n";
        by_series[key].insert(value);
        all.insert(value);
      }
      const bool lines = std::any_of(by_series.begin(), by_series.end(),
                                     [](const auto& each) { return each.second.size() > 1; });
      // Costs that are nearly equal explain nothing.
      const bool equal = !connected && low > 0 && high / low < 1.05;
      if (all.size() < 2 || equal || (connected && !lines) || drawn.contains(x)) return;
      table.charts.push_back(
          {.title = title + " against " +
                    (table.columns[column].heading.empty() ? x : table.columns[column].heading),
           .x = x,
           .y = "score",
           .series = std::move(series),
           .low = "low",
           .high = "high",
           .log_x = low > 0 && high / low >= 8});
    };
    for (const std::string& key : differing_) {
      std::vector<std::string> series;
      for (const std::string& other : differing_)
        if (other != key) series.push_back(column_name(other));
      add(column_name(key), std::move(series), true);
    }
    for (const char* const cost : {"state_bytes", "parameters", "seconds"})
      add(cost, {"variant"}, false);
  }

  void make_runs() {
    Table& table = board_.runs;
    table.name = "runs";
    table.title = "Runs";
    const auto differs = [&](auto value_of) {
      return std::any_of(runs_.begin(), runs_.end(), [&](const ReportedRun& run) {
        return value_of(run) != value_of(runs_.front());
      });
    };
    const auto summary_text = [](std::string Summary::*member) {
      return [member](const ReportedRun& run) {
        return run.record.summary ? (*run.record.summary).*member : std::string();
      };
    };
    const auto data = [](const ReportedRun& run) {
      std::string out;
      if (run.record.summary)
        for (const auto& [split, hash] : run.record.summary->data)
          out += fmt::format("{}{} {}", out.empty() ? "" : ", ", split, hash);
      return out;
    };
    struct Part {
      Column column;
      std::function<Cell(const ReportedRun&)> cell;
    };
    std::vector<Part> parts = {
        {{"run", ""}, [](const ReportedRun& run) { return run.record.name; }},
    };
    const auto add = [&](Column column, std::function<Cell(const ReportedRun&)> cell) {
      parts.push_back({std::move(column), std::move(cell)});
    };
    add({"variant", ""}, [this](const ReportedRun& run) {
      const auto variant = board_.variant_of[static_cast<size_t>(&run - runs_.data())];
      return variant ? Cell{groups_[*variant].label} : Cell{run.variant};
    });
    if (differs([](const ReportedRun& run) { return run.phase; }))
      add({"phase", ""}, [](const ReportedRun& run) { return run.phase; });
    for (const std::string& key : differing_)
      add({column_name(key), key}, [key](const ReportedRun& run) { return option_cell(run, key); });
    add({"seed", ""}, [](const ReportedRun& run) { return run.seed; });
    add({"status", ""}, [](const ReportedRun& run) {
      return run.reason.empty() ? run.status : run.status + ": " + run.reason;
    });
    add({"step", ""}, [](const ReportedRun& run) { return cell_of_count(step_of(run)); });
    const Metric metric = metric_;
    for (const bool test : {false, true}) {
      if (test && !metric_.test) continue;
      const std::string split = test ? "test" : "validation";
      add({split, split + " " + metric_.name()}, [=](const ReportedRun& run) {
        const auto& measured = test ? run.test : run.validation;
        return measured ? Cell{metric(*measured)} : Cell{};
      });
      add({split + "_loss", split + " loss"}, [=](const ReportedRun& run) {
        const auto& measured = test ? run.test : run.validation;
        return measured ? Cell{measured->loss} : Cell{};
      });
    }
    add({"seconds", "time (s)", 3},
        [](const ReportedRun& run) { return cell_of(seconds_of(run)); });
    add({"tokens_per_second", "tokens/s", 3},
        [](const ReportedRun& run) { return cell_of(speed_of(run)); });
    add({"peak_memory_mib", "peak memory (MiB)", 3},
        [](const ReportedRun& run) { return cell_of(memory_of(run)); });
    add({"threads", ""}, [](const ReportedRun& run) {
      return run.record.summary ? Cell{int64_t{run.record.summary->threads}} : Cell{};
    });
    add({"checkpoint", "checkpoint (XXH3-128)"}, [](const ReportedRun& run) {
      return run.checkpoint.empty() ? Cell{} : Cell{run.checkpoint + " " + run.checkpoint_digest};
    });
    const auto optional = [&](const char* name, const char* heading, auto value_of) {
      if (runs_.empty()) return;
      if (differs(value_of))
        add({name, heading}, [value_of](const ReportedRun& run) {
          const std::string value = value_of(run);
          return value.empty() ? Cell{} : Cell{value};
        });
      else if (const std::string value = value_of(runs_.front()); !value.empty())
        board_.provenance.push_back(std::string(heading) + ": " + value);
    };
    optional("version", "Longhand", summary_text(&Summary::version));
    optional("machine", "machine", summary_text(&Summary::machine));
    optional("host", "host", summary_text(&Summary::host));
    optional("data", "data (XXH3-128 of the first examples)", data);
    add({"command", "command that repeats it"}, [](const ReportedRun& run) {
      if (run.record.config.empty()) return Cell{};
      return Cell{fmt::format("longhand train {}/config.toml --out NEW", run.record.name)};
    });
    for (const Part& part : parts) table.columns.push_back(part.column);
    std::vector<size_t> order(runs_.size());  // by variant, trials of a search last
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const auto place = [&](size_t run) {
        return std::pair(board_.variant_of[run].value_or(groups_.size()), runs_[run].seed);
      };
      return place(a) < place(b);
    });
    for (const size_t run : order) {
      auto& row = table.rows.emplace_back();
      for (const Part& part : parts) row.push_back(part.cell(runs_[run]));
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
    if (std::isnan(score.low)) {
      std::vector<double> values;
      for (const auto& [seed, value] : group.scores) values.push_back(value);
      return fmt::format(" ({})", without_interval(values));
    }
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
    std::vector<double> a, b;
    for (const auto& [seed, value] : best.scores)
      if (const auto other = next.scores.find(seed); other != next.scores.end()) {
        a.push_back(metric_.bits ? -value : value);
        b.push_back(metric_.bits ? -other->second : other->second);
      }
    const Estimate difference =
        (metric_.bits ? paired_test(a, b) : paired_test_of_seeds(a, b)).difference;
    if (a.size() < 2) {
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
    size_t count = 0;
    for (const ReportedRun& run : runs_)
      if (!ended.contains(run.status)) {
        ++others[run.status];
        ++count;
      }
    if (count == 0) return;
    std::string text = fmt::format("{} of {} runs did not finish: ", count, runs_.size());
    std::string separator;
    for (const auto& [status, number] : others) {
      text += fmt::format("{}{} {}", separator, number, status);
      separator = ", ";
    }
    board_.summary.push_back(text + ".");
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

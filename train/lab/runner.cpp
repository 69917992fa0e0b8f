#include "longhand/train/lab/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/measure/clock.h"
#include "longhand/data/file.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

class Runner {
 public:
  Runner(const Grid& grid, fs::path directory, const RunnerOptions& options)
      : grid_(grid),
        directory_(std::move(directory)),
        options_(options),
        ours_(cells_of_shard(grid, options.shard)),
        states_(read_cells(grid, directory_)) {}

  SweepOutcome run() {
    check_sources();
    record_ended();
    for (const SweepCell& cell : runs_of(grid_, states_, options_.shard))
      forget_failure(state(cell));
    try {
      loop();
    } catch (...) {
      // Cells save first, as after a signal; callbacks may be what has failed.
      silent_ = true;
      stop();
      while (!running_.empty()) {
        reap();
        pause();
      }
      throw;
    }
    return {count_cells(grid_, states_, options_.shard), stopping_};
  }

 private:
  struct Running {
    const SweepCell& task;
    int64_t until;  // the step at which it is compared with other trials; 0: its end
    RunningCell shown;
    std::unique_ptr<Claim> claim{};
    CellRecord record{};
    double begin = clock_seconds();
    std::unique_ptr<Child> child{};
    int64_t written = 0;            // bytes_written() when it last made progress
    double longest = 0;             // seconds without progress, before those of `shown`
    std::optional<double> asked{};  // seconds since it was asked to stop
    std::string failure{};          // why, if it is to fail
  };

  void loop() {
    report();
    for (;;) {
      const bool any_ended = reap();
      if (!stopping_ && options_.should_stop && options_.should_stop()) stop();
      if (any_ended || needs_ || clock_seconds() - looked_ > 0.2) start_more();
      if (running_.empty() && (stopping_ || enough_failures() || (elsewhere_.empty() && !needs_)))
        break;
      if (any_ended || clock_seconds() - reported_ > 0.5) report();
      pause();
    }
    report();
  }

  void pause() {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (clock_seconds() - watched_ > 0.1) watch();
  }

  /// Counts time without progress, and ends cells that make none or do not end when asked to.
  void watch() {
    // This process may itself have been stopped: that time is not the cells'.
    const double passed = std::min(clock_seconds() - watched_, 1.0);
    watched_ = clock_seconds();
    for (const auto& each : running_) {
      double& quiet = each->shown.quiet;
      quiet += passed;
      if (const int64_t written = bytes_written(path(each->task)); written != each->written) {
        each->written = written;
        each->longest = std::max(each->longest, quiet);
        quiet = 0;
      }
      if (each->asked) {
        if ((*each->asked += passed) > options_.grace) each->child->signal(SIGKILL);
      } else if (options_.cell_timeout > 0 && quiet > options_.cell_timeout) {
        each->failure = concat_message("no progress for ", options_.cell_timeout,
                                       " s, the limit for cells; it was stopped");
        ask_to_stop(*each);
      }
    }
  }

  static void ask_to_stop(Running& running) {
    if (!running.asked) running.asked = 0;
    running.child->signal(SIGTERM);
    running.child->signal(SIGCONT);  // a stopped process does not see other signals
  }

  void stop() {
    stopping_ = true;
    for (const auto& each : running_) ask_to_stop(*each);
  }

  /// Throws ConfigError if cells to be run need runs that do not exist.
  void check_sources() const {
    std::map<std::string, std::set<std::string>> missing;  // variants, by missing run
    for (const CellTask& next : tasks(search_states(grid_, states_))) {
      const SweepCell& task = *next.cell;
      if (is_decided(task)) continue;
      const auto options = Config::parse(task.config, "cell.toml").given();
      for (const std::string name : {"train.init_", "train.distill_"}) {
        const auto from = options.find(name + "from");
        // A cell with a checkpoint has already been initialised.
        const bool has_begun = name == "train.init_" && state(task).summary;
        if (from == options.end() || plain_text(from->second).empty() || has_begun) continue;
        const std::string run = plain_text(from->second);
        const std::string checkpoint = plain_text(options.at(name + "checkpoint"));
        try {
          if (!state(task).summary) check_checkpoint_name(run, checkpoint, name + "checkpoint");
          find_checkpoint(run, checkpoint);
        } catch (const ConfigError& error) {
          missing[name + "from = " + run + ": " + error.what()].insert(
              grid_.variants[task.variant].label);
        }
      }
    }
    std::vector<std::string> lines;
    for (const auto& [problem, variants] : missing)
      lines.push_back(problem +
                      fmt::format("; variants that need it: {}", fmt::join(variants, ", ")));
    check<ConfigError>(lines.empty(), fmt::format("{}", fmt::join(lines, "\n")),
                       "\nno cell was run; train what is missing first, or correct the path");
  }

  /// Adds ended cells to the manifest that are missing from it: those of earlier versions, and of
  /// processes that were killed at that moment.
  void record_ended() {
    const Manifest manifest = read_manifest(directory_);
    for (const auto& [hash, s] : states_) {
      if (manifest.cells.contains(hash) || (!s.is_trained() && !s.has_failed())) continue;
      if (const auto claim = Claim::take(directory_ / "cells" / hash))
        record_cells(directory_, {hash});
    }
  }

  /// Forgets a failure of an earlier call or another process, which this call tries again.
  static void forget_failure(CellState& state) {
    if (state.status > CellStatus::diverged) state.status = CellStatus::interrupted;
  }

  /// Records trials that ended in the worse half.
  void record_halved(const std::vector<SearchState>& searches) {
    for (size_t v = 0; v < searches.size(); ++v) {
      const SearchState& search = searches[v];
      for (size_t trial = 0; trial < search.trials.size(); ++trial) {
        if (!search.trials[trial].ended) continue;
        for (const SweepCell& cell : grid_.searches(v, trial)) {
          CellState& s = state(cell);
          // A trial that was trained further is also a final cell.
          if ((s.status != CellStatus::stopped && s.status != CellStatus::interrupted) ||
              s.evaluations.rbegin()->first > *search.trials[trial].ended)
            continue;
          const auto claim = Claim::take(path(cell));
          if (!claim) continue;
          s.record.status = s.status = CellStatus::halved;
          write_record(path(cell), s.record);
          record_cells(directory_, {cell.hash});
        }
      }
    }
  }

  fs::path path(const SweepCell& task) const { return cell_directory(directory_, task); }
  CellState& state(const SweepCell& task) { return states_.at(task.hash); }
  const CellState& state(const SweepCell& task) const { return states_.at(task.hash); }

  std::string label(const SweepCell& task) const {
    std::string text = grid_.variants[task.variant].label;
    if (!grid_.trials.empty()) text += " " + grid_.trials[task.trial];
    return text + " seed=" + std::to_string(task.seed);
  }

  /// Returns this shard's cells known to be needed, in starting order: all variants with one seed
  /// before the next seed, so that early tables compare all variants.
  std::vector<CellTask> tasks(const std::vector<SearchState>& searches) const {
    std::vector<CellTask> all, out;
    for (size_t v = 0; v < searches.size(); ++v) {
      const SearchState& search = searches[v];
      all.insert(all.end(), search.tasks.begin(), search.tasks.end());
      for (const size_t trial : search.finals)
        for (const SweepCell& cell : grid_.finals(v, trial)) all.push_back({&cell});
    }
    std::ranges::stable_sort(all, {}, [](const CellTask& task) {
      return std::pair(task.cell->final, task.cell->nth_seed);
    });
    std::set<std::string> seen;  // two variants may have the same cell
    for (const CellTask& task : all)
      if (ours_[task.cell->variant][task.cell->nth_seed] && seen.insert(task.cell->hash).second)
        out.push_back(task);
    return out;
  }

  bool is_done(const SweepCell& task) const {
    return state(task).is_trained() && (!task.final || state(task).test);
  }
  bool is_damaged(const SweepCell& task) const { return state(task).status == CellStatus::damaged; }
  /// Done, damaged, or failed permanently or in this call.
  bool is_decided(const SweepCell& task) const {
    return is_done(task) || is_damaged(task) || state(task).status == CellStatus::diverged ||
           tried_.contains(task.hash);
  }
  bool is_running(const SweepCell& task) const {
    return std::ranges::any_of(running_,
                               [&](const auto& each) { return each->task.hash == task.hash; });
  }
  bool enough_failures() const {
    return options_.max_failures > 0 && failures_ >= options_.max_failures;
  }

  void start_more() {
    looked_ = clock_seconds();
    needs_ = false;
    elsewhere_.clear();
    if (stopping_ || enough_failures()) return;
    const std::vector<SearchState> searches = search_states(grid_, states_);
    record_halved(searches);
    for (const CellTask& next : tasks(searches)) {
      const SweepCell& task = *next.cell;
      const int64_t until = next.until;
      if (is_damaged(task) && tried_.insert(task.hash).second) announce(task);
      if (is_decided(task) || is_running(task)) continue;
      if (static_cast<int64_t>(running_.size()) >= options_.jobs || enough_failures()) return;
      auto running = std::make_unique<Running>(
          Running{task, until, {.label = label(task), .variant = task.variant}});
      try {
        running->claim = Claim::take(path(task));
        if (!running->claim) {
          elsewhere_.insert(task.hash);
          continue;
        }
        state(task) = read_cell(path(task));  // another process may have run it meanwhile
        forget_failure(state(task));
        // This process holds the claim itself.
        needs_ = true;
        if (is_decided(task) || (until > 0 && has_reached(state(task), until))) continue;
        start(*running);
        running_.push_back(std::move(running));
      } catch (const std::exception& error) {
        needs_ = true;
        if (abandon(*running, error.what()))
          conclude(task, until);
        else
          running_.push_back(std::move(running));
      }
    }
  }

  void start(Running& running) {
    const SweepCell& task = running.task;
    const CellRecord before = state(task).record;
    CellRecord& record = running.record;
    record = new_record(grid_, task);
    record.seconds = before.seconds;
    record.peak_memory = before.peak_memory;
    // Without checkpoints it must be trained again.
    running.shown.testing = state(task).is_trained() && has_checkpoints(path(task));
    record.attempts = before.attempts + (running.shown.testing ? 0 : 1);
    record.jobs = running.shown.testing ? before.jobs : options_.jobs;
    running.shown.steps = running.until > 0 ? running.until : trainer_options(task).steps;
    launch(running);
  }

  /// Starts the process of a cell: training, or evaluation if it is trained.
  void launch(Running& running) {
    const fs::path folder = path(running.task);
    forget_cell(directory_, running.task.hash);
    std::vector<std::string> arguments;
    if (running.shown.testing) {
      const char* const split = state(running.task).has_test_split() ? "test" : "validation";
      // Not --quiet: watch() needs the output.
      arguments = {"evaluate", folder.string(), "--split", split, "--json"};
    } else {
      const fs::path config = folder / "cell.toml";  // with it, --resume starts again if it must
      data::write_file_durably(config, running.task.config);
      arguments = {"train", config.string(), "--out", folder.string()};
      if (fs::exists(folder / "config.toml")) {
        fs::create_directories(folder / "checkpoints");  // which an archive may lack
        arguments = {"train", "--resume", folder.string()};
      }
    }
    if (running.until > 0)
      arguments.insert(arguments.end(), {"--until", std::to_string(running.until)});
    for (const std::string& word : place_of_data(running.task, folder)) arguments.push_back(word);
    ChildOptions child = process_of_cell(options_.program, std::move(arguments), options_.threads);
    child.err = child.out = folder / "log.txt";
    if (running.shown.testing) {
      child.out = folder / "test.json.part";
      fs::remove(child.out);
    }
    child.inherited = {running.claim->file()};
    // If the sweep is killed, its cells save what they have.
    child.death_signal = SIGTERM;
    running.record.status = CellStatus::running;
    running.written = bytes_written(folder);
    running.shown.quiet = 0;
    running.child = std::make_unique<Child>(child);
    running.record.pid = running.shown.pid = running.child->pid();
    write_record(folder, running.record);
  }

  /// Handles processes that have ended; returns whether there was one.
  bool reap() {
    bool any = false;
    for (size_t i = 0; i < running_.size();) {
      const auto ended = running_[i]->child->poll();
      if (!ended) {
        ++i;
        continue;
      }
      any = true;
      bool is_over = false;
      try {
        is_over = handle(*running_[i], *ended);
      } catch (const std::exception& error) {
        is_over = abandon(*running_[i], error.what());
      }
      if (!is_over) {
        ++i;  // it continues with its evaluation
        continue;
      }
      const SweepCell& task = running_[i]->task;
      const int64_t until = running_[i]->until;
      running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
      conclude(task, until);
    }
    return any;
  }

  /// Fails a cell for an error in this process. Returns whether it has ended; if not, asks it to.
  bool abandon(Running& running, const std::string& reason) {
    running.failure = reason;
    if (running.child && !running.child->poll()) {
      ask_to_stop(running);
      return false;
    }
    running.claim.reset();
    CellState& s = state(running.task);
    s.record.reason = reason;
    s.status = CellStatus::failed;
    return true;
  }

  /// Called after the end of a cell, or of the part of it up to the step `until`.
  void conclude(const SweepCell& task, int64_t until) {
    const CellState& s = state(task);
    if (until > 0 && !s.is_trained() && !s.has_failed() && has_reached(s, until)) return report();
    // A trial that trained may be needed again as a final cell, to be evaluated.
    if (s.has_failed() || !s.is_trained() || s.test) tried_.insert(task.hash);
    // A learning rate may be too high; finding that out is what a search is for.
    const bool expected = !task.final && s.status == CellStatus::diverged;
    if (s.has_failed() && !expected) ++failures_;
    report();
    announce(task);
  }

  void announce(const SweepCell& task) {
    if (options_.on_end && !silent_) options_.on_end({label(task), task, state(task)});
  }

  /// Returns whether the cell has ended.
  bool handle(Running& running, const Ended& ended) {
    const SweepCell& task = running.task;
    const fs::path folder = path(task);
    CellRecord& record = running.record;
    record.seconds += ended.seconds;
    const bool testing = running.shown.testing;
    if (!testing) record.peak_memory = std::max(record.peak_memory, ended.peak_memory);
    const bool succeeded = ended.code == 0 && ended.signal == 0;
    const bool fails = !running.failure.empty();
    if (succeeded && !testing) ended_.push_back({task.variant, clock_seconds() - running.begin});
    if (succeeded && !testing && task.final && !running.asked) {
      running.shown.testing = true;
      state(task) = read_cell(folder);  // its summary says whether there is a test split
      launch(running);
      return false;
    }
    if (succeeded && testing) {
      write_test(folder, data::read_text_file(folder / "test.json.part"));
      fs::remove(folder / "test.json.part");
    }
    record.pid = 0;
    if (succeeded) {
      record.status = testing ? CellStatus::finished : CellStatus::trained;
    } else if ((stopping_ || ended.code == 75 || ended.signal == SIGINT ||
                ended.signal == SIGTERM) &&
               !fails && ended.code != 4) {
      // Code 75: stopped by a signal, perhaps one this process has not seen yet; it has saved.
      record.status = ended.signal == SIGKILL ? CellStatus::interrupted : CellStatus::stopped;
    } else {
      record.log = log_tail(folder);
      const Failure failure =
          fails ? Failure{CellStatus::failed, running.failure} : failure_of(ended, record.log);
      record.status = failure.status;
      record.reason = failure.reason;
    }
    write_record(folder, record);
    record_cells(directory_, {task.hash});
    running.claim.reset();
    state(task) = read_cell(folder);
    return true;
  }

  void report() {
    reported_ = clock_seconds();
    if (!options_.on_progress || silent_) return;
    SweepProgress out;
    static_cast<CellCounts&>(out) = count_cells(
        grid_, states_, options_.shard, [&](const SweepCell& cell) { return !is_decided(cell); });
    out.elsewhere = static_cast<int64_t>(elsewhere_.size());
    for (const auto& each : running_) {
      RunningCell& cell = each->shown;
      cell.step = last_step(path(each->task));
      cell.seconds = clock_seconds() - each->begin;
      cell.stopped = is_stopped(cell.pid);
      const double most = options_.cell_timeout > 0 ? options_.cell_timeout / 2
                                                    : std::max(120.0, 4 * each->longest);
      cell.stalled = cell.stopped || cell.quiet > most;
      out.running.push_back(cell);
    }
    out.seconds_left = time_left(out);
    options_.on_progress(out);
  }

  /// Estimated from the mean time of ended cells of the same variant, or of all.
  std::optional<double> time_left(const SweepProgress& now) const {
    std::map<size_t, std::pair<double, double>> by_variant;  // sum and count
    double sum = 0, number = 0;
    const auto add = [&](size_t variant, double seconds) {
      by_variant[variant].first += seconds;
      by_variant[variant].second += 1;
      sum += seconds;
      number += 1;
    };
    for (const auto& [variant, seconds] : ended_) add(variant, seconds);
    for (const RunningCell& cell : now.running)
      if (!cell.testing && cell.step * 20 >= cell.steps && cell.step > 0)
        add(cell.variant,
            cell.seconds * static_cast<double>(cell.steps) / static_cast<double>(cell.step));
    if (number == 0) return std::nullopt;
    const auto expected = [&](size_t variant) {
      const auto found = by_variant.find(variant);
      return found == by_variant.end() ? sum / number : found->second.first / found->second.second;
    };
    double left = 0;
    for (const SweepCell& cell : runs_of(grid_, states_, options_.shard))
      if (!is_decided(cell) && !is_running(cell) && !state(cell).is_trained() &&
          state(cell).status != CellStatus::halved)
        left += expected(cell.variant);
    for (const RunningCell& cell : now.running)
      left += std::max(0.0, expected(cell.variant) - cell.seconds);
    return left / static_cast<double>(options_.jobs);
  }

  const Grid& grid_;
  fs::path directory_;
  const RunnerOptions& options_;
  std::vector<std::vector<bool>> ours_;  // cells_of_shard()
  CellStates states_;
  std::vector<std::unique_ptr<Running>> running_;
  std::set<std::string> tried_;      // hashes of cells that ended in this call, or are damaged
  std::set<std::string> elsewhere_;  // hashes of cells that another process runs
  std::vector<std::pair<size_t, double>> ended_;  // variant and seconds, of this call
  int64_t failures_ = 0;
  bool stopping_ = false;
  bool silent_ = false;  // makes no callbacks
  bool needs_ = true;    // whether start_more() may find another cell
  double looked_ = clock_seconds(), reported_ = looked_, watched_ = looked_;
};

}  // namespace

Failure failure_of(const Ended& ended, const std::string& log) {
  std::string last = log.substr(0, log.find_last_not_of('\n') + 1);
  last.erase(0, last.rfind('\n') + 1);  // npos + 1 = 0
  if (last.empty()) last = "no message";
  constexpr std::string_view prefix = "longhand: ";
  if (last.starts_with(prefix)) last.erase(0, prefix.size());
  const std::string memory = concat_message(ended.peak_memory >> 20, " MiB in use at its peak");
  if (ended.out_of_memory)
    return {CellStatus::out_of_memory, "killed by the kernel for lack of memory, " + memory};
  if (ended.signal == SIGKILL)
    return {CellStatus::crashed, "killed by signal 9, perhaps for lack of memory, " + memory};
  if (ended.signal != 0)
    return {CellStatus::crashed,
            concat_message("ended by signal ", ended.signal, " (", strsignal(ended.signal), ")")};
  if (ended.code == 4) return {CellStatus::diverged, last};
  if (ended.code == 127) return {CellStatus::failed, "the program could not be started"};
  if (last == "out of memory") return {CellStatus::out_of_memory, last + ", " + memory};
  return {CellStatus::failed, concat_message("exit code ", ended.code, ": ", last)};
}

SweepOutcome run_sweep(const Grid& grid, const fs::path& directory, const RunnerOptions& options) {
  return Runner(grid, directory, options).run();
}

}  // namespace longhand::train

#include "longhand/train/lab/estimate.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>

#include "longhand/data/file.h"
#include "longhand/train/lab/runner.h"
#include "longhand/train/run/child.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Trains a cell for a few steps and evaluates it once.
void measure(const SweepCell& cell, const EstimateOptions& options, VariantEstimate& out) {
  constexpr int64_t steps = 3;
  const ScratchDirectory scratch;
  const fs::path config = scratch.path / "cell.toml", run = scratch.path / "run";
  data::write_file_durably(config, cell.config);
  // The schedule may depend on train.steps, so the run is stopped rather than shortened.
  ChildOptions child_options =
      process_of_cell(options.program,
                      {"train", config.string(), "--out", run.string(), "--quiet", "--set",
                       "train.eval_every=" + std::to_string(steps), "--set",
                       "train.checkpoint_every=0", "--set", "train.log_every=1"},
                      options.threads);
  child_options.out = child_options.err = scratch.path / "log.txt";
  Child child(child_options);
  std::optional<Ended> ended;
  for (bool stopped = false; !(ended = child.poll());) {
    // The step after the evaluation has been recorded.
    const bool enough = last_step(run) > steps;
    if (!stopped && (enough || (options.should_stop && options.should_stop()))) {
      child.signal(SIGTERM);
      stopped = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  out.peak_memory = ended->peak_memory;
  if (ended->signal != 0 || (ended->code != 0 && ended->code != 75)) {
    const Failure failure = failure_of(*ended, log_tail(scratch.path));
    out.failure = to_string(failure.status) + ": " + failure.reason;
    return;
  }
  const std::optional<Summary> summary = read_run(run).summary;
  if (!summary || !summary->step_seconds) {
    out.failure = "stopped before its first step";
    return;
  }
  out.step_seconds = *summary->step_seconds;
  out.evaluation_seconds =
      std::max(0.0, summary->seconds - static_cast<double>(summary->step) * out.step_seconds);
  out.start_seconds = std::max(0.0, ended->seconds - summary->seconds);
}

/// Returns the average fraction of its steps that a trial trains, where the worse half ends early.
double share_of_trials(const Sweep& sweep) {
  double trials = 1, begin = 0, share = 0;
  for (const double end : sweep.search->halving) {
    share += trials * (end - begin);
    begin = end;
    trials /= 2;
  }
  return share + trials * (1 - begin);
}

/// Returns the seconds of a cell, with its test evaluation if final, which may be all that is left.
double seconds_of(const Sweep& sweep, const SweepCell& cell, bool is_trained,
                  const VariantEstimate& measured) {
  if (is_trained) return measured.start_seconds + measured.evaluation_seconds;
  const TrainerOptions options = trainer_options(cell);
  const int64_t steps = options.steps, every = options.eval_every;
  const int64_t evaluations = (every > 0 ? (steps + every - 1) / every : 1) + (cell.final ? 1 : 0);
  return (cell.final ? 2 : 1) * measured.start_seconds +
         (cell.final ? 1 : share_of_trials(sweep)) *
             (static_cast<double>(steps) * measured.step_seconds +
              static_cast<double>(evaluations) * measured.evaluation_seconds);
}

}  // namespace

std::vector<VariantEstimate> estimate(const Grid& grid, const CellStates& states,
                                      const EstimateOptions& options) {
  std::vector<VariantEstimate> out;
  std::map<size_t, CellRefs> runs;  // by variant
  for (const SweepCell& cell : runs_of(grid, states, options.shard))
    runs[cell.variant].emplace_back(cell);
  for (const auto& [v, cells] : runs) {
    if (options.should_stop && options.should_stop()) break;
    if (options.on_progress)
      options.on_progress(static_cast<int64_t>(v), static_cast<int64_t>(grid.variants.size()));
    VariantEstimate& each = out.emplace_back();
    each.label = grid.variants[v].label;
    measure(grid.finals(v).front(), options, each);
    for (const SweepCell& cell : cells) {
      ++each.cells;
      const CellState& state = states.at(cell.hash);
      const bool done = cell.final ? state.status == CellStatus::finished : state.is_trained();
      if (done || state.status == CellStatus::halved || state.status == CellStatus::diverged)
        continue;
      ++each.cells_left;
      if (each.failure.empty())
        each.seconds_left += seconds_of(grid.sweep, cell, state.is_trained(), each);
    }
  }
  return out;
}

SweepEstimate add_up(const std::vector<VariantEstimate>& estimates, int64_t jobs) {
  SweepEstimate out;
  std::vector<int64_t> memory;
  for (const VariantEstimate& each : estimates) {
    out.cells += each.cells;
    out.cells_left += each.cells_left;
    out.failed += each.failure.empty() ? 0 : 1;
    out.seconds += each.seconds_left;
    memory.push_back(each.peak_memory);
  }
  out.seconds /= static_cast<double>(jobs);
  std::sort(memory.rbegin(), memory.rend());
  for (int64_t i = 0; i < jobs; ++i)
    out.memory += memory.empty() ? 0 : memory[std::min(static_cast<size_t>(i), memory.size() - 1)];
  return out;
}

}  // namespace longhand::train

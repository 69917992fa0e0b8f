// Runner: trains and evaluates the cells of a sweep, each in a separate process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/search.h"
#include "longhand/train/run/child.h"

namespace longhand::train {

/// A cell that is running.
struct RunningCell {
  std::string label;  // of the variant, with the trial and the seed
  size_t variant = 0;
  int64_t step = 0, steps = 0;
  double seconds = 0;
  bool testing = false;  // evaluation on the test split
  double quiet = 0;      // seconds since it last wrote metrics or progress
  bool stalled = false;  // quiet for much longer than before, or stopped
  pid_t pid = 0;
  bool stopped = false;  // by SIGSTOP or similar, according to the kernel
};

/// The cells of this shard, including those of earlier calls; failed ones of these count as
/// remaining until they have been tried again.
struct SweepProgress : CellCounts {
  int64_t elsewhere = 0;               // run by other processes
  std::optional<double> seconds_left;  // nothing while unknown
  std::vector<RunningCell> running;
};

/// A cell that has ended, or is damaged.
struct EndedCell {
  std::string label;
  const SweepCell& cell;
  const CellState& state;
};

struct RunnerOptions {
  /// The program with the commands train and evaluate.
  std::filesystem::path program = "/proc/self/exe";
  int64_t jobs = 1;          // cells to run concurrently
  int64_t threads = 1;       // threads per cell
  Shard shard{};             // runs only its cells
  int64_t max_failures = 0;  // starts no more cells after this many failures; 0: unlimited
  /// Seconds without progress after which a cell is stopped and fails; 0: unlimited.
  double cell_timeout = 0;
  /// Seconds after which a cell that was asked to stop but is still running is killed.
  double grace = 60;
  /// Called about every half second, and after each cell.
  std::function<void(const SweepProgress&)> on_progress = {};
  std::function<void(const EndedCell&)> on_end = {};
  /// Called often; returning true stops all cells, which save, and ends the sweep.
  std::function<bool()> should_stop = {};
};

/// How a sweep ended, with the cells of this shard.
struct SweepOutcome : CellCounts {
  bool stopped = false;
};

/// Runs every unfinished cell of the grid in sweep/cells/HASH: resumes those with a checkpoint,
/// evaluates final ones on the test split, and writes cell.json. Diverged cells are not tried
/// again, other failures are; damaged cells are left alone. A cell whose files this process cannot
/// write fails, and the others continue; other errors are thrown after all cells have stopped and
/// saved. Several processes may run the same directory: each cell is run by one of them, and each
/// returns when all cells are done. A cell's bits do not depend on how it was run. Throws
/// ConfigError, before the first cell, if cells need runs that do not exist (train.init_from,
/// train.distill_from), naming all, and DataError if the manifest cannot be written.
SweepOutcome run_sweep(const Grid& grid, const std::filesystem::path& directory,
                       const RunnerOptions& options);

/// Why a cell failed: status and reason, from how its process ended and its last output.
struct Failure {
  CellStatus status;
  std::string reason;
};

Failure failure_of(const Ended& ended, const std::string& log);

}  // namespace longhand::train

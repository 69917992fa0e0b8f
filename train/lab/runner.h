// Runner: trains and evaluates the cells of a sweep, each in a process of its own.
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

/// A cell that is being run.
struct RunningCell {
  std::string label;  // of the variant, with the trial and the seed
  size_t variant = 0;
  int64_t step = 0, steps = 0;
  double seconds = 0;
  bool testing = false;  // evaluation on the test split
  double quiet = 0;      // seconds since it last wrote anything: metrics or progress
  bool stalled = false;  // quiet for much longer than before, or stopped
  pid_t pid = 0;
  bool stopped = false;  // by SIGSTOP or the like, as the kernel says
};

/// The cells of this shard, those of earlier calls among them, of which failed ones are left until they
/// have been tried again.
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
  int64_t jobs = 1;          // cells side by side
  int64_t threads = 1;       // of each
  Shard shard{};             // runs only its cells
  int64_t max_failures = 0;  // starts no more cells after this number of failures; 0: any number
  /// Seconds without progress after which a cell is stopped, and fails; 0: any time.
  double cell_timeout = 0;
  /// Seconds after which a cell that was asked to stop, and has not ended, is killed.
  double grace = 60;
  /// Called about every half second, and after each cell.
  std::function<void(const SweepProgress&)> on_progress = {};
  std::function<void(const EndedCell&)> on_end = {};
  /// Called often; true stops all cells, which save, and ends the sweep.
  std::function<bool()> should_stop = {};
};

/// How a sweep ended, with the cells of this shard.
struct SweepOutcome : CellCounts {
  bool stopped = false;
};

/// Runs every cell of the grid that is not finished yet in sweep/cells/HASH: resumes those that have
/// a checkpoint, evaluates final ones on the test split, and writes cell.json. A cell that diverged is
/// not tried again, other failures are; a damaged one is left as it is. A cell that this process cannot
/// run, because its files cannot be written, fails, and the others go on; after any other error all cells
/// are stopped, and save, before it is thrown. Several processes may run the same directory: each cell is run
/// by one of them, and each process returns when all cells are done. The bits of a cell do not depend
/// on how it was run. Throws ConfigError, before the first cell, if cells need runs that do not exist
/// (train.init_from, train.distill_from), naming all, and DataError if the manifest cannot be written.
SweepOutcome run_sweep(const Grid& grid, const std::filesystem::path& directory,
                       const RunnerOptions& options);

/// Why a cell failed: its status and the reason, from how its process ended and what it wrote last.
struct Failure {
  CellStatus status;
  std::string reason;
};

Failure failure_of(const Ended& ended, const std::string& log);

}  // namespace longhand::train

// Repairs a damaged run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace longhand::train {

/// A file that cannot be read, or that no longer fits the other files.
struct SetAside {
  std::filesystem::path file;
  std::string reason;
  std::filesystem::path kept_as;  // its new name
};

/// The result of repair().
struct Repair {
  /// The step of last.h5 now; nothing if the run has not saved a checkpoint: it starts over.
  std::optional<int64_t> step;
  std::vector<SetAside> set_aside;
  std::filesystem::path last_from;  // what last.h5 was restored from; empty: it was valid
  std::filesystem::path best_from;  // the same for best.h5
  std::vector<std::string> notes;   // what could not be restored, and the consequences

  bool changed() const { return !set_aside.empty() || !last_from.empty() || !best_from.empty(); }
};

/// Repairs a run whose checkpoints or metrics are damaged, or whose last.h5 is missing. last.h5
/// becomes the valid checkpoint with the most steps, as `train --resume` would choose it; best.h5
/// is restored if another checkpoint is from the same step; metrics.jsonl is cut off at last.h5.
/// Nothing is deleted: damaged files are kept as NAME.damaged, replaced ones as NAME.before-repair.
/// An intact run is not changed. Throws ConfigError if the directory holds no run or is in use, and
/// DataError, with all reasons and before any change, if it has checkpoints but no valid one.
Repair repair(const std::filesystem::path& run);

}  // namespace longhand::train

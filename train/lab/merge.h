// Merge: takes over the cells that other machines have run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "longhand/train/lab/grid.h"

namespace longhand::train {

/// What was taken over from one directory.
struct Merged {
  int64_t copied = 0;                  // cells
  std::vector<std::string> damaged{};  // cells that were not copied, each with the reason
};

/// Throws ConfigError unless a directory is that of a sweep.
void check_holds_sweep(const std::filesystem::path& directory);

/// Copies the cells of this grid that have ended in some directories to another one in which they have
/// not, or are damaged; all others are left as they are. A cell is named by the hash of its effective configuration, so
/// the directories may be of sweeps that differ. Each copy is durable, and there as a whole or not at all.
/// Returns what was copied from each directory. Throws before anything is copied: ConfigError if a
/// directory is not that of a sweep, and DataError if a cell has different results in two directories, or
/// holds a link. Throws DataError, too, if a cell cannot be written.
std::vector<Merged> merge_cells(const Grid& grid, const std::vector<std::filesystem::path>& from,
                                const std::filesystem::path& to);

}  // namespace longhand::train

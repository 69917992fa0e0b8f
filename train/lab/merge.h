// Merge: copies cells that other machines have run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "longhand/train/lab/grid.h"

namespace longhand::train {

/// What was copied from one directory.
struct Merged {
  int64_t copied = 0;                  // copied cells
  std::vector<std::string> damaged{};  // cells not copied, each with the reason
};

/// Throws ConfigError unless a directory holds a sweep.
void check_holds_sweep(const std::filesystem::path& directory);

/// Copies the ended cells of this grid from some directories to another, where they have not ended
/// or are damaged; all others stay as they are. A cell is named by the hash of its effective
/// configuration, so the directories may belong to different sweeps. Each copy is durable and
/// atomic. Returns what was copied from each directory. Throws, before anything is copied:
/// ConfigError if a directory does not hold a sweep, and DataError if a cell has different results
/// in two directories, or holds a link. Also throws DataError if a cell cannot be written.
std::vector<Merged> merge_cells(const Grid& grid, const std::vector<std::filesystem::path>& from,
                                const std::filesystem::path& to);

}  // namespace longhand::train

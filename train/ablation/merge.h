// Merge: takes over the cells that other machines have run.
#pragma once

#include <cstdint>
#include <filesystem>

#include "longhand/train/ablation/grid.h"

namespace longhand::train {

/// Copies the cells of this grid that have ended in one directory, or diverged, to another one in which
/// they have not; all others are left as they are. A cell is named by the hash of its effective
/// configuration, so the directories may be of sweeps that differ. An interrupted copy leaves no part of
/// a cell. Returns the number of cells copied. Throws ConfigError if `from` is not the directory of a
/// sweep, and DataError for damaged files and for those that cannot be written.
int64_t merge_cells(const Grid& grid, const std::filesystem::path& from,
                    const std::filesystem::path& to);

}  // namespace longhand::train

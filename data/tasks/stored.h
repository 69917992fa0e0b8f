// Tasks as files, in the format of the task `tokens` (see data/README.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "longhand/data/dataset.h"
#include "longhand/data/trailer.h"

namespace longhand::data {

/// What write_task() writes. Version 1 had no trailer, and groups that libhdf5 may crash on.
inline constexpr FileKind data_file{"Longhand data file", "LHDT", 2};

/// Writes the three splits of a task and its TaskInfo as one HDF5 file, which replaces
/// `path` when it is complete. The task `tokens` makes the same task from it, with the same content
/// hashes. `seed`, with which the task was made, is stored for reference. The compressed file is
/// held in memory. Throws DataError if it cannot be written.
void write_task(const Task& task, const std::filesystem::path& path, uint64_t seed);

}  // namespace longhand::data

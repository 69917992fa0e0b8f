// Tasks as files, in the form that the task `tokens` reads (see data/README.md).
#pragma once

#include <cstdint>
#include <filesystem>

#include "longhand/data/dataset.h"

namespace longhand::data {

/// Writes the three splits of a task and its TaskInfo as one HDF5 file, which takes the place of
/// `path` when it is complete. The task `tokens` makes the same task of it, with the same content
/// hashes. `seed` is what the task was made with, for the record. The packed file is held in
/// memory. Throws DataError if it cannot be written.
void write_task(const Task& task, const std::filesystem::path& path, uint64_t seed);

}  // namespace longhand::data

// Reads files in child processes of this program, so that a crash in libhdf5 becomes an error.
#pragma once

#include <string>

#include "longhand/data/file.h"

namespace longhand::cli {

/// Returns the output of `longhand data check hdf5` on a file, read in a child process with limits.
/// Throws DataError if that process crashes or exceeds a limit.
std::string read_file_in_child(const data::RegularFile& file, bool json);

/// From now on, read_file_in_child() reads files before libhdf5 parses them: see data::FileGuard.
void read_files_in_child_first();

}  // namespace longhand::cli

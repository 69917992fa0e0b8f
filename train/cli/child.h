// This program in processes of its own that read files, so that one which crashes libhdf5 is an error.
#pragma once

#include <string>

#include "longhand/data/file.h"

namespace longhand::cli {

/// Returns what `longhand data check hdf5` prints about a file, which it reads in a process of its own with
/// limits. Throws DataError if that process crashes or exceeds a limit.
std::string read_file_in_child(const data::RegularFile& file, bool json);

/// From now on, files that libhdf5 parses are first read by read_file_in_child() (see data::FileGuard).
void read_files_in_child_first();

}  // namespace longhand::cli

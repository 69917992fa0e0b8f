// This program in processes of its own: for measurements, so that the peak of memory is theirs alone,
// and for files, so that one which crashes libhdf5 is an error.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "longhand/data/file.h"
#include "longhand/train/run/child.h"

namespace longhand::cli {

/// Runs this program with the given arguments and returns its standard output; nothing if it failed,
/// with its exit code in `code` and the reason on stderr. `what` names it in messages. `program` is another
/// build of it. It is killed, which counts as a failure, once it has run for longer than `most_seconds`.
std::optional<std::string> run_program_with(
    const std::vector<std::string>& arguments, const std::string& what, int& code,
    const std::filesystem::path& program = train::own_program(),
    double most_seconds = std::numeric_limits<double>::infinity());

/// Returns what `longhand data check hdf5` prints about a file, which it reads in a process of its own with
/// limits. Throws DataError if that process crashes or exceeds a limit.
std::string read_file_in_child(const data::RegularFile& file, bool json);

/// From now on, files that libhdf5 parses are first read by read_file_in_child() (see data::FileGuard).
void read_files_in_child_first();

}  // namespace longhand::cli

// A guard that checks files before libhdf5 parses them.
#pragma once

#include <functional>

#include "longhand/data/file.h"

namespace longhand::data {

/// Called with an open file before anything in it is parsed, and throws to reject it; the same open
/// file is then parsed. The program longhand installs a guard that reads the whole file in a
/// separate process, as it will be loaded and with survey(), under limits on memory and time, so
/// that a file that crashes libhdf5 causes an error. Without a guard (the default), files are
/// parsed in this process only.
using FileGuard = std::function<void(const RegularFile&)>;

/// Installs a guard, which several threads may call at the same time; null removes it.
void set_file_guard(FileGuard guard);

bool has_file_guard();

/// Calls the guard, if there is one, unless it has already accepted this file: same device, inode,
/// size and change time. For readers of images; Hdf5Reader::open() calls it.
void pass_file_guard(const RegularFile& file);

}  // namespace longhand::data

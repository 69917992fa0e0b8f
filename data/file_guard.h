// A guard that sees files before libhdf5 parses them.
#pragma once

#include <functional>

#include "longhand/data/file.h"

namespace longhand::data {

/// Called with an open file before anything in it is parsed, to refuse it by an exception; what is
/// parsed then is this open file. The program longhand installs a guard that reads the whole file in a
/// process of its own, as it will be loaded and with survey(), under limits of memory and time, so that
/// a file which crashes libhdf5 is an error. Without a guard, the default, files are parsed in this
/// process alone.
using FileGuard = std::function<void(const RegularFile&)>;

/// Installs a guard; null removes it. May be called by several threads at the same time.
void set_file_guard(FileGuard guard);

bool has_file_guard();

/// Calls the guard, if there is one, unless it has accepted this very file before: the same place, size
/// and time of change. For readers of images; Hdf5Reader::open() calls it.
void pass_file_guard(const RegularFile& file);

}  // namespace longhand::data

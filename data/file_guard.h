// A guard that sees files before libhdf5 parses them.
#pragma once

#include <filesystem>
#include <functional>

namespace longhand::data {

/// Called with the path of a file before anything in it is parsed, to refuse it by an exception. The
/// program longhand installs a guard that reads the whole file in a process of its own, as it will be
/// loaded and with survey(), under limits of memory and time, so that a file which crashes libhdf5 is
/// an error. Without a guard, the default, files are parsed in this process alone.
using FileGuard = std::function<void(const std::filesystem::path&)>;

/// Installs a guard; null removes it. May be called by several threads at the same time.
void set_file_guard(FileGuard guard);

/// Calls the guard, unless it has accepted this very file before: the same place, size and time of
/// change. Returns whether there is a guard. For readers of images; Hdf5Reader::open() calls it.
bool pass_file_guard(const std::filesystem::path& path);

}  // namespace longhand::data

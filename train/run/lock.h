// Locks of files, which end with the processes that hold them.
#pragma once

#include <filesystem>

namespace longhand::train {

/// Takes the exclusive lock (flock) of an open file, without waiting. Returns false if another process
/// has a lock. Throws DataError, naming `path`, if the file system has no locks, unless the variable
/// LONGHAND_NO_LOCKS of the environment is 1: it then returns true without a lock.
bool take_lock(int file, const std::filesystem::path& path);

/// Whether another process has the exclusive lock of an open file.
bool is_locked(int file);

}  // namespace longhand::train

// File locks, which end with the processes that hold them.
#pragma once

#include <filesystem>

namespace longhand::train {

/// Takes the exclusive lock (flock) of an open file, without waiting. Returns false if another
/// process holds a lock. Throws DataError, naming `path`, if the file system does not support
/// locks; with the environment variable LONGHAND_NO_LOCKS=1, returns true without a lock instead.
bool take_lock(int file, const std::filesystem::path& path);

/// Returns whether another process holds the exclusive lock of an open file.
bool is_locked(int file);

}  // namespace longhand::train

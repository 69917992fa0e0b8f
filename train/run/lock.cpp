#include "longhand/train/run/lock.h"

#include <sys/file.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::train {
namespace {

/// Returns 0 or the error code.
int lock(int file, int kind) {
  int result = 0;
  do result = flock(file, kind | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

bool take_lock(int file, const std::filesystem::path& path) {
  const int error = lock(file, LOCK_EX);
  if (error == 0) return true;
  if (error == EWOULDBLOCK) return false;
  const char* const without = std::getenv("LONGHAND_NO_LOCKS");
  check<DataError>(without && std::string_view(without) == "1", "cannot lock ", path.string(), ": ",
                   data::system_reason(error),
                   "; if no other process writes there, set LONGHAND_NO_LOCKS=1 to go on without");
  return true;
}

bool is_locked(int file) { return lock(file, LOCK_SH) == EWOULDBLOCK; }

}  // namespace longhand::train

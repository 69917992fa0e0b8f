#include "longhand/data/file_guard.h"

#include <sys/stat.h>

#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace longhand::data {
namespace {

// Identifies a file by its location and its last change.
using FileIdentity = std::tuple<dev_t, ino_t, off_t, time_t, long>;

struct Guard {
  std::mutex mutex;
  FileGuard function;
  std::set<FileIdentity> accepted;
};

Guard& guard() {
  static auto* const guard = new Guard;  // leaked: files may be opened by static objects
  return *guard;
}

}  // namespace

void set_file_guard(FileGuard function) {
  const std::scoped_lock lock(guard().mutex);
  guard().function = std::move(function);
  guard().accepted.clear();
}

bool has_file_guard() {
  const std::scoped_lock lock(guard().mutex);
  return guard().function != nullptr;
}

void pass_file_guard(const RegularFile& file) {
  struct stat status;
  const bool known = ::fstat(file.descriptor(), &status) == 0;
  // The change time, which only the system can set.
  const FileIdentity identity = known ? FileIdentity(status.st_dev, status.st_ino, status.st_size,
                                                     status.st_ctim.tv_sec, status.st_ctim.tv_nsec)
                                      : FileIdentity();
  FileGuard function;
  {
    const std::scoped_lock lock(guard().mutex);
    if (!guard().function || (known && guard().accepted.contains(identity))) return;
    function = guard().function;
  }
  function(file);  // without the lock: it may take long, or fork
  if (known) {
    const std::scoped_lock lock(guard().mutex);
    guard().accepted.insert(identity);
  }
}

}  // namespace longhand::data

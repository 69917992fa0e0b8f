#include "longhand/data/file_guard.h"

#include <sys/stat.h>

#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace longhand::data {
namespace {

// A file by its place and its last change.
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

bool pass_file_guard(const std::filesystem::path& path) {
  struct stat status;
  const bool known = ::stat(path.c_str(), &status) == 0;
  const FileIdentity file = known ? FileIdentity(status.st_dev, status.st_ino, status.st_size,
                                                 status.st_mtim.tv_sec, status.st_mtim.tv_nsec)
                                  : FileIdentity();
  FileGuard function;
  {
    const std::scoped_lock lock(guard().mutex);
    if (!guard().function) return false;
    if (known && guard().accepted.contains(file)) return true;
    function = guard().function;
  }
  function(path);  // without the lock: it may take long, or fork
  if (known) {
    const std::scoped_lock lock(guard().mutex);
    guard().accepted.insert(file);
  }
  return true;
}

}  // namespace longhand::data

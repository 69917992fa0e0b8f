// A value that passes leave behind for others to read, such as metrics of the latest pass.
#pragma once

#include <mutex>
#include <utility>

namespace longhand::attention {

/// One value, written and read whole: passes of several threads may evaluate one variant at the
/// same time. The last writer wins.
template <class T>
class Latest {
 public:
  void set(T value) {
    const std::lock_guard lock(mutex_);
    std::swap(value_, value);  // what was there dies without the lock
  }
  T get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  mutable std::mutex mutex_;
  T value_{};
};

}  // namespace longhand::attention

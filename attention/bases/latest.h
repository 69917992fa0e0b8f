// A value stored by the latest pass, such as its metrics.
#pragma once

#include <mutex>
#include <utility>

namespace longhand::attention {

/// A value protected by a mutex: several threads may evaluate one variant at the same time. The
/// last write wins.
template <class T>
class Latest {
 public:
  void set(T value) {
    const std::lock_guard lock(mutex_);
    std::swap(value_, value);  // the old value is destroyed after unlocking
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

// The clock that durations are measured with.
#pragma once

#include <chrono>

namespace longhand {

/// Seconds of a monotonic clock. Only differences within one process are meaningful.
inline double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace longhand

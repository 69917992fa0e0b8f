// The clock that durations are measured with.
#pragma once

#include <chrono>

namespace longhand {

/// Seconds of a clock that never goes back. Only differences within one process have a meaning.
inline double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace longhand

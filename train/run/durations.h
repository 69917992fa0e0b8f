// Durations: the median of any number of durations, in constant memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace longhand::train {

/// A histogram of durations with bins of equal ratio.
class Durations {
 public:
  /// Seconds; counted as 1e-7 or 1e5 if beyond.
  void add(double seconds);
  /// The median, with a relative error of at most 0.5 %; nothing if there are none.
  std::optional<double> median() const;

 private:
  std::array<int64_t, 2778> counts_{};
  int64_t all_ = 0;
};

}  // namespace longhand::train

// Durations: the median of a stream of durations, in constant memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

namespace longhand::train {

/// A histogram of durations with bins of equal ratio.
class Durations {
 public:
  /// Adds a duration in seconds, clamped to 1e-7 to 1e5.
  void add(double seconds) {
    const double x = std::clamp(seconds, shortest, longest);
    const auto bin = static_cast<size_t>(std::log(x / shortest) / ratio_);
    ++counts_[std::min(bin, counts_.size() - 1)];
    ++all_;
  }
  /// Returns the median, with a relative error of at most 0.5 %; nothing if there are no durations.
  std::optional<double> median() const {
    int64_t below = 0;
    for (size_t bin = 0; bin < counts_.size(); ++bin) {
      below += counts_[bin];
      if (2 * below > all_) return shortest * std::exp((static_cast<double>(bin) + 0.5) * ratio_);
    }
    return std::nullopt;
  }

 private:
  static constexpr double shortest = 1e-7, longest = 1e5;
  double ratio_ = std::log(1.01);  // logarithm of the ratio of a bin's edges
  std::array<int64_t, 2778> counts_{};
  int64_t all_ = 0;
};

}  // namespace longhand::train

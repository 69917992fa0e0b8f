// Durations: the median of any number of durations, in constant memory.
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
  /// Seconds; counted as 1e-7 or 1e5 if beyond.
  void add(double seconds) {
    const double x = std::clamp(seconds, shortest, longest);
    const auto bin = static_cast<size_t>(std::log(x / shortest) / ratio_);
    ++counts_[std::min(bin, counts_.size() - 1)];
    ++all_;
  }
  /// The median, with a relative error of at most 0.5 %; nothing if there are none.
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
  double ratio_ = std::log(1.01);  // of the ends of a bin
  std::array<int64_t, 2778> counts_{};
  int64_t all_ = 0;
};

}  // namespace longhand::train

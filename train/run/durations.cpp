#include "longhand/train/run/durations.h"

#include <algorithm>
#include <cmath>

namespace longhand::train {
namespace {

constexpr double shortest = 1e-7, longest = 1e5;
const double ratio = std::log(1.01);  // of the ends of a bin

}  // namespace

void Durations::add(double seconds) {
  const double x = std::clamp(seconds, shortest, longest);
  const auto bin = static_cast<size_t>(std::log(x / shortest) / ratio);
  ++counts_[std::min(bin, counts_.size() - 1)];
  ++all_;
}

std::optional<double> Durations::median() const {
  int64_t below = 0;
  for (size_t bin = 0; bin < counts_.size(); ++bin) {
    below += counts_[bin];
    if (2 * below > all_) return shortest * std::exp((static_cast<double>(bin) + 0.5) * ratio);
  }
  return std::nullopt;
}

}  // namespace longhand::train

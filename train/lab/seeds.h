// The scores of a variant by seed, and what they say about it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "longhand/core/statistics.h"

namespace longhand::train {

using SeedScores = std::map<int64_t, double>;

inline std::vector<double> values_of(const SeedScores& scores) {
  std::vector<double> out;
  for (const auto& [seed, value] : scores) out.push_back(value);
  return out;
}

/// The mean over seeds, of accuracies with accuracy_of_seeds(), of losses with an interval that is cut at 0. With the number of test examples, which all seeds
/// share, the interval of an accuracy m includes that these are a sample: the variance of one is at most m (1 - m).
inline Estimate mean_of(const SeedScores& scores, bool accuracy, int64_t examples = 0) {
  if (!accuracy) {
    Estimate out = estimate(values_of(scores));
    if (std::ranges::all_of(scores, [](const auto& each) { return each.second >= 0; }))
      out.low = std::max(out.low, 0.0);
    return out;
  }
  Estimate out = accuracy_of_seeds(values_of(scores));
  if (examples == 0 || std::isnan(out.low)) return out;
  const double sampled =
      1.96 * std::sqrt(out.mean * (1 - out.mean) / static_cast<double>(examples));
  out.low = std::max(0.0, out.mean - std::hypot(out.mean - out.low, sampled));
  out.high = std::min(1.0, out.mean + std::hypot(out.high - out.mean, sampled));
  return out;
}

/// The test of a against b, over the seeds that both have.
inline PairedTest paired_by_seed(const SeedScores& a, const SeedScores& b, bool accuracy) {
  std::vector<double> x, y;
  for (const auto& [seed, value] : a)
    if (const auto other = b.find(seed); other != b.end()) {
      x.push_back(value);
      y.push_back(other->second);
    }
  return accuracy ? paired_test_of_seeds(x, y) : paired_test(x, y);
}

}  // namespace longhand::train

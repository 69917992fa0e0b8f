// The scores of a variant by seed, and what they say about it.
#pragma once

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

/// The mean over seeds, of accuracies with accuracy_of_seeds().
inline Estimate mean_of(const SeedScores& scores, bool accuracy) {
  return accuracy ? accuracy_of_seeds(values_of(scores)) : estimate(values_of(scores));
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

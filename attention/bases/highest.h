// Selection of the highest scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace longhand::attention {

/// Calls omit(j) for all of n scores but the `count` highest, in order; of equal ones the earlier are
/// among these. `sorted` is memory to work in.
template <class T, class F>
void omit_all_but_highest(const T* scores, int64_t n, int64_t count, std::vector<T>& sorted,
                          F&& omit) {
  if (count >= n) return;
  sorted.assign(scores, scores + n);
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
  const T least = sorted[static_cast<size_t>(count - 1)];
  // How many of those equal to it are selected.
  int64_t equal = count - std::count_if(scores, scores + n, [=](T x) { return x > least; });
  for (int64_t j = 0; j < n; ++j)
    if (const T score = scores[j]; score < least || (score == least && equal-- <= 0)) omit(j);
}

}  // namespace longhand::attention

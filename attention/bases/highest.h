// Selection of the highest scores.
#pragma once

#include <cstdint>
#include <vector>

namespace longhand::attention {

/// Selects the `count` highest of scores that are added in the order of their indices. Of equal
/// scores the earlier are selected; -inf and NaN never are. T is float or double.
template <class T>
class Highest {
 public:
  explicit Highest(int64_t count) : count_(count) { clear(); }

  void clear();
  /// Adds n scores with the indices first, first + 1, …, after all that were added before. Not for
  /// use inside simd().
  void add(const T* scores, int64_t n, int64_t first = 0);
  /// Appends the selected indices to `to`, in increasing order.
  void append_to(std::vector<int32_t>& to);

 private:
  struct Entry {
    T score;
    int32_t index;
  };
  void reduce();

  int64_t count_;
  T bound_;                     // the count-th highest score when entries were last reduced
  std::vector<Entry> entries_;  // contains the highest so far
};

}  // namespace longhand::attention

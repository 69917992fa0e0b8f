// Selection of the highest scores: of a stream of them, and of queries and keys.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "longhand/core/memory/recycled.h"
#include "longhand/core/tensor.h"

namespace longhand::attention {

/// Selects the `count` highest of scores that are added in the order of their indices. Of equal
/// scores the earlier are selected. -inf never is; NaN counts as infinity, so that it shows in what is computed from
/// the selected. T is float or double.
template <class T>
class Highest {
 public:
  explicit Highest(int64_t count) : count_(count) { clear(); }

  int64_t count() const { return count_; }
  void clear();
  /// Adds n scores with the indices first, first + 1, …, after all that were added before. Not for
  /// use inside simd().
  void add(const T* scores, int64_t n, int64_t first = 0);
  /// Appends the selected indices to `to`, in increasing order.
  template <class List>
  void append_to(List& to) {
    reduce();
    to.insert(to.end(), indices_.begin(), indices_.end());
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  void raise_bound(const T* scores, int64_t n);
  void reduce();

  int64_t count_;
  T bound_;  // the count-th highest score when the entries were last reduced
  // The entries, which contain the highest so far, in the order of their indices.
  ShortVector<T> scores_;
  ShortVector<int32_t> indices_;
  ShortVector<Bits> bits_;
};

/// What highest_keys() selects from: the scores scale q_i·k_j + bias_ij of keys j <= i if causal, otherwise
/// j < lengths[b] (undefined: all), where `keep` (u8) is 1. `keep` and `bias` broadcast to (B, H, N, M).
struct HighestOptions {
  double scale = 1;
  bool causal = false;
  Tensor lengths{}, keep{}, bias{};
};

/// The keys with the `count` highest scores of each query, in increasing order: (B, H, N, min(count, M))
/// i32, ended by -1 if there are fewer, for queries (B, N, H, D) and keys (B, M, H, D). Queries from
/// lengths[b] on have none. All N M scores are computed, block by block.
Tensor highest_keys(const Tensor& queries, const Tensor& keys, int64_t count,
                    const HighestOptions& options);

/// Appends row `row` of lists (rows, most), of any leading axes, up to its end.
void append_list(const Tensor& lists, int64_t row, std::vector<int32_t>& to);

}  // namespace longhand::attention

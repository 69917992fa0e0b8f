// Selection of the highest scores: from a stream of scores, and for queries and keys.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "longhand/core/memory/recycled.h"
#include "longhand/core/tensor.h"

namespace longhand::attention {

/// Selects the `count` highest of the scores added, which come in the order of their indices. Ties
/// go to the earlier score. -inf is never selected; NaN counts as infinity, so that it shows up in
/// results computed from the selection. T is float or double.
template <class T>
class Highest {
 public:
  explicit Highest(int64_t count) : count_(count) { clear(); }

  int64_t count() const { return count_; }
  void clear();
  /// Adds n scores with indices first, first + 1, …, after all scores added before. Must not be
  /// called inside simd().
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
  T bound_;  // the count-th highest score at the last reduction of the entries
  // The entries, which contain the highest scores so far, in the order of their indices.
  ShortVector<T> scores_;
  ShortVector<int32_t> indices_;
  ShortVector<Bits> bits_;
};

/// The scores of highest_keys(): scale q_i·k_j + bias_ij for keys j <= i if causal, or j <
/// lengths[b] (undefined: all), where `keep` (u8) is 1. `keep`, `bias` broadcast to (B, H, N, M).
struct HighestOptions {
  double scale = 1;
  bool causal = false;
  Tensor lengths{}, keep{}, bias{};
};

/// Finds the keys with the `count` highest scores per query, in increasing order: (B, H, N,
/// min(count, M)) i32, terminated by -1 if there are fewer, for queries (B, N, H, D) and keys
/// (B, M, H, D). Queries from lengths[b] on have none. All N M scores are computed, block by block.
Tensor highest_keys(const Tensor& queries, const Tensor& keys, int64_t count,
                    const HighestOptions& options);

/// Appends row `row` of `lists` (rows, most), with any leading axes, up to its terminator.
void append_list(const Tensor& lists, int64_t row, std::vector<int32_t>& to);

}  // namespace longhand::attention

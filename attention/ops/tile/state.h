// The state of a scan in memory, and the associative operation that joins the states of two
// consecutive runs of tokens. Used by groups of blocks, combine() and sums over all keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/core/simd.h"

namespace longhand::attention::tile {

/// S (m, E), followed by z (m) if there is a normaliser.
struct StateShape {
  int64_t m, E;
  bool normalizer;
  int64_t size() const { return m * (E + (normalizer ? 1 : 0)); }
};

/// e^left x + e^right y = e^scale (left_factor x + right_factor y), with factors of at most 1.
template <class T>
struct JoinFactors {
  T scale, left_factor, right_factor;
};

/// The join for exponents of Base. Empty states have -inf; if both are empty, the factors are 1.
template <class T>
JoinFactors<T> join_of(T left, T right) {
  const T scale = std::max(left, right);
  return {scale, left == scale ? T{1} : Base<T>::power(left - scale),
          right == scale ? T{1} : Base<T>::power(right - scale)};
}

/// x_l = left_factor x_l + right_factor y_l, for n rows; one JoinFactors for all rows, or one each.
template <class T>
void join_rows(T* x, const T* y, int64_t n, int64_t width, const JoinFactors<T>* joins, bool one) {
  simd([=] {
    for (int64_t l = 0; l < n; ++l) {
      const T left = joins[one ? 0 : l].left_factor, right = joins[one ? 0 : l].right_factor;
      T* const to = x + l * width;
      const T* const from = y + l * width;
      for (int64_t e = 0; e < width; ++e) to[e] = left * to[e] + right * from[e];
    }
  });
}

/// x = the join of the states x (left, of the earlier tokens) and y (right).
template <class T>
void join_states(const StateShape& shape, T* x, const T* y, const JoinFactors<T>* joins, bool one) {
  join_rows(x, y, shape.m, shape.E, joins, one);
  if (shape.normalizer)
    join_rows(x + shape.m * shape.E, y + shape.m * shape.E, shape.m, 1, joins, one);
}

}  // namespace longhand::attention::tile

// Decays within a block of tokens, one per token: e^s_i with s_i <= 0, C_i = Σ_(t<=i) s_t.
#pragma once

#include <algorithm>
#include <cstdint>

#include "longhand/attention/ops/tile/lanes.h"
#include "longhand/core/kernels/scratch.h"
#include "longhand/core/simd.h"

namespace longhand::attention::tile {

/// The powers e^C and e^(C_i - C_j) of a block, all at most 1.
template <class T>
class BlockDecay {
 public:
  BlockDecay(int64_t lanes, Scratch& scratch)
      : lanes_(lanes),
        sums_(scratch.take<double>(lanes)),
        from_before_(scratch.take<T>(lanes)),
        to_last_(scratch.take<T>(lanes)),
        within_(scratch.take<T>(lanes * lanes)) {}

  /// Sets all factors to 1: no decay.
  void clear() {
    std::fill_n(from_before_, lanes_, T{1});
    std::fill_n(to_last_, lanes_, T{1});
    for (int64_t j = 0; j < lanes_; ++j)
      for (int64_t i = 0; i < lanes_; ++i) within_[j * lanes_ + i] = j <= i ? 1 : 0;
    steady_ = true;
  }

  /// Sets the decays s_i <= 0 of `count` tokens. Sums are in double precision, so that a large s_i
  /// does not reduce the accuracy of the others.
  void set(const double* steps, int64_t count) {
    // Sums start after the first token, whose decay applies only to the state before the block.
    const double first = std::max(steps[0], least);
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) sum += std::max(steps[i], least);
      sums_[i] = sum;
    }
    std::fill(sums_ + count, sums_ + lanes_, sum);
    if (sum == 0) {
      const T before = Base<T>::power(static_cast<T>(std::min(first, 0.0)));
      if (!steady_) clear();
      std::fill_n(from_before_, lanes_, before);
      std::fill_n(to_last_, lanes_, T{1});
      return;
    }
    steady_ = false;
    simd([=, this, n = whole_lanes(count)] {
      const auto power = [](double x) { return Base<T>::power(static_cast<T>(std::min(x, 0.0))); };
      for (int64_t i = 0; i < lanes_; ++i) {
        from_before_[i] = power(first + sums_[i]);
        to_last_[i] = power(sum - sums_[i]);
      }
      // e^(C_i - C_j) = e^(C_i - C_p) e^(C_p - C_j) for the first token p of a step of queries.
      for (int64_t p = 0; p < n; p += lane_multiple) {
        T query[lane_multiple];
        for (int64_t i = 0; i < lane_multiple; ++i) query[i] = power(sums_[p + i] - sums_[p]);
        for (int64_t j = 0; j < p; j += lane_multiple) {
          T key[lane_multiple];
          for (int64_t i = 0; i < lane_multiple; ++i) key[i] = power(sums_[p] - sums_[j + i]);
          for (int64_t i = 0; i < lane_multiple; ++i)
            for (int64_t l = 0; l < lane_multiple; ++l)
              within_[(j + i) * lanes_ + p + l] = key[i] * query[l];
        }
        for (int64_t j = p; j < p + lane_multiple; ++j)
          for (int64_t i = p; i < p + lane_multiple; ++i)
            within_[j * lanes_ + i] = j <= i ? power(sums_[i] - sums_[j]) : T{0};
      }
    });
  }

  const T* from_before() const { return from_before_; }  // e^C_i
  const T* to_last() const { return to_last_; }          // e^(C_last - C_j)
  T whole() const { return from_before_[lanes_ - 1]; }   // e^C_last
  const T* within() const { return within_; }            // e^(C_i - C_j) for j <= i, or 0

 private:
  // Powers of smaller exponents are 0. Clamping avoids the undefined differences of -inf, and the
  // loss of accuracy of very large sums.
  static constexpr double least = -800;

  const int64_t lanes_;
  double* const sums_;
  T *const from_before_, *const to_last_, *const within_;
  bool steady_ = false;  // no decay within the block
};

}  // namespace longhand::attention::tile

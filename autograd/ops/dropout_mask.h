// The dropout mask, for the operations that apply dropout.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/philox.h"
#include "longhand/core/simd.h"

namespace longhand::ops {

/// Element i is kept if number i, 16 random bits, is at least p 2^16: p is rounded to a multiple of
/// 2^-16. Numbers 8 b … 8 b + 7 are the halves of the words of the generator's block b, low halves
/// first. Masks are not stored; the backward pass recomputes them. If the operand holds a section
/// of axis 1, i is the index in the whole; elements beyond its end are padding.
class DropoutMask {
 public:
  /// The mask of an operand of this shape. Throws ConfigError, naming the operation, unless 0 <= p
  /// < 1, and ShapeError for a section of a shape without axis 1.
  DropoutMask(std::string_view op, const DropoutOptions& dropout, const Shape& shape)
      : state_(dropout.generator.state()) {
    check<ConfigError>(0 <= dropout.p && dropout.p < 1, op, ": probability ", dropout.p,
                       ": expected a value in [0, 1)");
    threshold_ = static_cast<uint16_t>(std::min(std::nearbyint(dropout.p * 65536), 65535.0));
    const auto [begin, all] = dropout.section;
    if (all == 0 || !on()) return;
    check<ShapeError>(shape.rank() >= 2 && begin >= 0 && all >= 0, op,
                      ": dropout expected a section of ", all, " from ", begin, " on, got ", shape);
    int64_t row = 1;
    for (int axis = 2; axis < shape.rank(); ++axis) row *= shape[axis];
    run_ = std::max<int64_t>(1, shape[1] * row);
    stride_ = all * row;
    begin_ = begin * row;
  }

  bool on() const { return threshold_ > 0; }
  /// 1 / (1 - p), for the rounded p.
  double scale() const { return 65536.0 / (65536.0 - threshold_); }

  /// Calls f(j, count, keep) for blocks j … j + count - 1 of the n elements starting at `first`:
  /// keep(i) tells f whether element first + j + i is kept. f is a kernel for simd().
  template <class F>
  void for_pieces(int64_t first, int64_t n, F f) const {
    // Up to the end of each sequence, consecutive elements are also consecutive in the whole.
    for (int64_t j = 0; j < n;) {
      const int64_t sample = (first + j) / run_, in_run = (first + j) % run_;
      const int64_t count = std::min(n - j, run_ - in_run);
      for_run(j, sample * stride_ + begin_ + in_run, count, f);
      j += count;
    }
  }

 private:
  // for_pieces() for n elements from element `to` on, whose numbers start at `first`.
  template <class F>
  void for_run(int64_t to, int64_t first, int64_t n, F f) const {
    // The numbers fit into the L1 cache; philox_words() generates 12 blocks of 8 of them at a time.
    constexpr int64_t piece = 12 * 96;
    uint32_t words[piece / 2 + 4];
    uint16_t numbers[piece + 8];
    for (int64_t j = 0; j < n; j += piece) {
      const int64_t begin = first + j, count = std::min(piece, n - j);
      const int64_t blocks = (begin % 8 + count + 7) / 8;
      kernels::philox_words(state_, static_cast<uint64_t>(begin / 8), blocks, words);
      std::memcpy(numbers, words, static_cast<size_t>(16 * blocks));
      simd([&, t = threshold_, from = numbers + begin % 8] {
        f(to + j, count, [=](int64_t i) { return from[i] >= t; });
      });
    }
  }

  Generator::State state_;
  uint16_t threshold_ = 0;
  // Element i is element i % run_ of sample i / run_, number i / run_ stride_ + begin_ + i % run_.
  int64_t run_ = std::numeric_limits<int64_t>::max(), stride_ = 0, begin_ = 0;
};

}  // namespace longhand::ops

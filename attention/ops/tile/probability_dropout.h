// Dropout of attention probabilities. Which ones are kept is a function of the index; nothing is
// stored.
#pragma once

#include <cstdint>

#include "longhand/autograd/ops.h"
#include "longhand/core/kernels/philox.h"

namespace longhand::attention {

/// p̃_ij = keep_ij p_ij / (1 - p). keep_ij compares p 2^16 with one of the two 16-bit halves of
/// hash(a_i, b_i, c_j/2, d_j/2), selected by j mod 2; p is rounded to a multiple of 2^-16. The
/// words a, b of a query and c, d of a pair of keys come from Philox; the hash, at a quarter of its
/// cost, only combines them.
class ProbabilityDropout {
 public:
  /// For `heads` heads, which may be a section of the heads of the mask, and queries from
  /// `first_query` on. Requires 0 <= p < 1.
  ProbabilityDropout(const DropoutOptions& options, int64_t heads, int64_t first_query = 0);

  bool on() const { return threshold_ > 0; }
  /// 1 / (1 - p), for the rounded p.
  double scale() const { return 65536.0 / (65536.0 - threshold_); }
  uint32_t threshold() const { return threshold_; }

  /// Sets first[n], second[n] to the words a, b of queries begin + n, or c, d of pairs of keys
  /// begin + n, for 0 <= n < count. `head` is b H + h, for the H heads of the operand.
  void query_words(int64_t head, int64_t begin, int64_t count, uint32_t* first,
                   uint32_t* second) const;
  void key_words(int64_t head, int64_t begin, int64_t count, uint32_t* first,
                 uint32_t* second) const;

  /// keep_ij as (B, H, N, M) u8.
  Tensor kept(const Shape& shape) const;
  /// keep_ij scale() for keys j < M on the lists (B, H, N, most) i32 of queries; 0 for j = -1.
  Tensor factors(const Tensor& lists, int64_t M, DType dtype) const;

 private:
  // Calls f(head, keep) in parallel for `count` heads of N queries, M keys; keep(i, j) is keep_ij.
  template <class F>
  void for_heads(int64_t count, int64_t N, int64_t M, F f) const;

  // Whether the probability of key j is kept, by the hash of its pair.
  bool keeps(uint32_t both, int64_t j) const {
    return (j % 2 ? both >> 16 : both & 0xffff) >= threshold_;
  }

  // The index b H + h among all heads of the mask.
  int64_t whole_head(int64_t head) const {
    return of_.of == 0 ? head : head / heads_ * of_.of + of_.first + head % heads_;
  }

  uint32_t threshold_;
  Generator::State queries_, keys_;
  int64_t heads_;
  Section of_;
  int64_t first_query_;
};

/// Attention weights (B, H, N, M) after dropout, for variants that store them.
Variable dropped(const Variable& weights, const DropoutOptions& options);

/// The two 16-bit numbers of a query and a pair of keys, that of the even key in the low bits. Use
/// inside simd().
inline uint32_t dropout_hash(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  uint32_t x = (a ^ c) * 0x7feb352du;
  x = ((x ^ x >> 15) + (b ^ d)) * 0x846ca68bu;
  return x ^ x >> 16;
}

}  // namespace longhand::attention

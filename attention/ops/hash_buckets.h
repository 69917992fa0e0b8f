// Buckets of a locality-sensitive hash. Kitaev et al. 2020 (arXiv 2001.04451), section 2:
//
//   h_r(x) = argmax [R_r x; -R_r x],   R_r (buckets / 2, D)
#pragma once

#include <cstdint>

#include "longhand/attention/ops/bucket_attention.h"

namespace longhand::attention {

/// Hashes per head by rotations (H, rounds, buckets / 2, D), in f64; 0 if there is one bucket.
class Hash {
 public:
  Hash(const Tensor& rotations, int64_t buckets);

  int64_t buckets() const { return buckets_; }
  int64_t rounds() const { return columns_.size(1); }
  /// Writes h_r(x) of head h to `to` for `count` rows x of D floats or doubles, `step` apart.
  template <class T>
  void operator()(const T* x, int64_t step, int64_t count, int64_t h, int64_t r, int32_t* to) const;

 private:
  int64_t buckets_;
  Tensor columns_;  // (H, rounds, D, buckets / 2 rounded up to a multiple of 8), padded with zeros
};

/// Sorts the first lengths[b] tokens (undefined: all) of q (B, N, H, D) into buckets, per head and
/// round, for bucket_attention().
Buckets hash_buckets(const Tensor& q, const Hash& hash, int64_t window, bool causal,
                     const Tensor& lengths);

}  // namespace longhand::attention

// A scan with one factor per level of a Fenwick tree: earlier tokens are grouped into blocks that
// grow with distance, and each query weighs each block. Guo et al. 2025, "Log-Linear Attention"
// (arXiv 2506.04761), section 3.
//
//   out_i = Σ_(j<=i) s_(i,l(i,j)) e^(g_(j+1) + … + g_i) (q_i·k_j) v_j
//
// Level 0 is j = i. Level l >= 1 exists for i if bit l - 1 of i is set. It is the block of 2^(l-1)
// tokens that ends before i rounded down to a multiple of 2^(l-1).
#pragma once

#include <vector>

#include "longhand/attention/ops/scan_step.h"

namespace longhand::attention {

/// Computes out (B, N, H, E) for `inputs` with one g per head, or none, and scales s
/// (B, N, H, levels); higher levels share the scale of the last one. Takes time N log N.
/// Differentiable with respect to all inputs. The result at i does not depend on later tokens, bit
/// for bit. All exponentials have exponents of at most 0. Throws ShapeError if shapes do not match.
Variable fenwick_scan(const ScanInputs& inputs, const Variable& scales);

/// The blocks of the tokens so far, log2 of their number, for decoders.
class FenwickState {
 public:
  /// Adds a token with q, k and v (B, H, m or E), g (B, H) and scales (B, H, levels). Returns out
  /// (B, H, E), undefined unless `read`. Computes in f64 and without gradients.
  Tensor step(const StepInputs& token, const Tensor& scales, bool read);
  /// Elements per head after this many tokens, for keys of m and values of E elements.
  static int64_t numbers(int64_t tokens, int64_t m, int64_t E);
  int64_t numel() const;

 private:
  struct Block {
    Variable S, log_decay;  // (B, H, m, E); Σ g since the end of the block (B, H)
  };
  std::vector<Block> blocks_;  // of 2^l tokens, where bit l of tokens_ is set
  int64_t tokens_ = 0;
};

}  // namespace longhand::attention

// The scan with a factor for each level of a Fenwick tree: what lies far back is in blocks of
// tokens, larger ones further back, and each query weighs every block. Guo et al. 2025, "Log-Linear
// Attention" (arXiv 2506.04761), section 3.
//
//   out_i = Σ_(j<=i) s_(i,l(i,j)) e^(g_(j+1) + … + g_i) (q_i·k_j) v_j
//
// Level 0 is j = i. Level l >= 1, which i has where bit l - 1 of i is set, is the block of the
// 2^(l-1) tokens before i rounded down to a multiple of 2^(l-1).
#pragma once

#include <vector>

#include "longhand/attention/ops/scan_step.h"

namespace longhand::attention {

/// out (B, N, H, E), for `inputs` with one g a head, or none, and scales s (B, N, H, levels);
/// levels from the last one on share its scale. In time N log N. Differentiable with respect to all
/// inputs. The result at i, bit by bit, does not depend on later tokens. Every exponential is taken
/// of an exponent of at most 0. Throws ShapeError if shapes do not match.
Variable fenwick_scan(const ScanInputs& inputs, const Variable& scales);

/// The blocks of the tokens so far: log2 of their number, for decoders.
class FenwickState {
 public:
  /// Adds a token, with q, k and v (B, H, m or E), g (B, H) and scales (B, H, levels). Returns out
  /// (B, H, E), undefined without `read`. In f64 and without gradients.
  Tensor step(const StepInputs& token, const Tensor& scales, bool read);
  /// Numbers of one head after so many tokens, of keys with m and values with E numbers.
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

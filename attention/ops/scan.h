// The scan: causal sums over a state that may decay, for whole sequences, and for sequences split
// into parts that pass the state on. For single tokens see scan_step.h.
//
//   S_i = e^{g_i} S_(i-1) + φ(k_i) v_iᵀ,   z_i = e^{g_i} z_(i-1) + φ(k_i),   out_i = S_iᵀ φ(q_i)
//
// With g = 0 it is causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236, eq. 9);
// with one g per head, retention (Sun et al. 2023, arXiv 2307.08621, eq. 5 and 6) or Mamba-2
// (Dao & Gu 2024, arXiv 2405.21060); with one per channel, gated linear attention (Yang et al.
// 2023, arXiv 2312.06635, eq. 3).
#pragma once

#include <memory>

#include "longhand/attention/ops/feature_formula.h"
#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens per block of a long sequence; a scan processes one block at a time. Blocks are larger if
/// token pairs need fewer products than states: up to 128 tokens may be one block.
inline constexpr int64_t scan_block = 48, max_scan_block = 128;

/// The state that a scan carries from token to token: e^log_scale S and e^log_scale z, with m
/// features per head.
struct ScanState {
  Variable S{};          // (B, H, m, E)
  Variable z{};          // (B, H, m); undefined without a normaliser
  Variable log_scale{};  // (B, H), or (B, H, m) for one scale per feature; undefined: 0
};

/// Joins the states of two consecutive runs of tokens: `left`, the state after the first run, and
/// `right`, the state after the second run when started from zeros. log_decay <= 0, the sum of g
/// over the second run, is (B, H), (B, H, m), or undefined for 0.
///
/// Associative: combine(combine(a, b, g), c, h) = combine(a, combine(b, c, h), g + h). The scale of
/// the result is the larger of the two, so that nothing overflows; gradients treat scales as
/// constants. Throws ShapeError if shapes do not match.
ScanState combine(const ScanState& left, const ScanState& right, const Variable& log_decay);

/// The state after the parts before this one, where each part contributes `own`, its state when
/// started from zeros. log_decay of its tokens is (B, n, H), (B, n, H, m), or undefined.
ScanState state_before(const ScanState& own, const Variable& log_decay, const Join& join);

struct ScanInputs {
  Variable q, k;         // (B, N, H, D)
  Variable v;            // (B, N, H, E)
  Variable log_decay{};  // g <= 0: (B, N, H), or (B, N, H, D) without exponentials; undefined: 0
};

struct ScanOptions {
  /// No waves. With exponentials the state has log_scale c_i = max(c_(i-1) + g_i, max_l t_il), and
  /// the largest t of each query is subtracted.
  FeatureFormula features{};
  bool query_norm = false;  // subtract half_norm |x|² from t of queries too
  bool reverse =
      false;  // from the last token to the first: sums over j >= i; not with one g per channel
  bool log_scales = false;  // return result.log_scales; only with exponentials
  bool normalizer = true;   // keep z, and append a column for it to out
  bool final_state = true;  // return result.state
  int64_t block = 0;        // tokens per block, at most max_scan_block; 0: chosen by shape
  /// Features of a projection, and weights of token pairs within a block, are kept for the
  /// gradients if they take at most this many bytes.
  int64_t most_kept = int64_t{16} << 20;
  /// The parts before this one: the scan starts from the state after them. Null: there are none.
  /// Excludes initial and final states, log_scales and reverse. Sun et al. 2025 (arXiv 2502.07563).
  std::shared_ptr<const Join> join{};
};

struct ScanResult {
  /// (B, N, H, E + 1): S_iᵀ φ(q_i) and z_iᵀ φ(q_i); without a normaliser (B, N, H, E). With
  /// exponentials, relative to e^c_i and the largest feature of the query; see normalised().
  Variable out;
  ScanState state;      // after the last token; with `reverse`, after the first
  Tensor log_scales{};  // (B, H, N): out_i is relative to e^log_scale_i
};

/// Scans from the state `initial` (null: zeros), which has a log_scale (B, H) only with
/// exponentials. Operands may have any strides. They must be finite, except for log_decay: -inf
/// resets the state.
///
/// Both results are differentiable with respect to all inputs; scales are treated as constants. For
/// the gradients, saves the inputs, c, the state before every fourth block, and what `most_kept`
/// allows; other features are recomputed. The result at i does not depend on later tokens, bit for
/// bit. Bitwise identical for any number of threads. All exponentials have exponents of at most 0.
/// Throws ShapeError if shapes or dtypes do not match.
ScanResult scan(const ScanInputs& inputs, const ScanState* initial = nullptr,
                const ScanOptions& options = {});

}  // namespace longhand::attention

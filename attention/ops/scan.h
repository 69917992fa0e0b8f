// The scan: causal sums over a state that may decay. One operation for whole sequences, for parts
// of them that hand their state on, and for single tokens.
//
//   S_i = e^{g_i} S_(i-1) + φ(k_i) v_iᵀ,   z_i = e^{g_i} z_(i-1) + φ(k_i),   out_i = S_iᵀ φ(q_i)
//
// With g = 0 it is causal linear attention (Katharopoulos et al. 2020, arXiv 2006.16236, eq. 9);
// with one g a head, a retention (Sun et al. 2023, arXiv 2307.08621, eq. 5 and 6) or Mamba-2 (Dao &
// Gu 2024, arXiv 2405.21060); with one a channel, gated linear attention (Yang et al. 2023, arXiv
// 2312.06635, eq. 3).
#pragma once

#include <optional>

#include "longhand/attention/ops/normalised.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens of a block: what a scan takes at once.
inline constexpr int64_t scan_block = 48;

/// What a scan carries from token to token: e^log_scale S and e^log_scale z, for each of the m
/// features of each head.
struct ScanState {
  Variable S{};          // (B, H, m, E)
  Variable z{};          // (B, H, m); undefined without a normaliser
  Variable log_scale{};  // (B, H), or (B, H, m): a scale of each feature; undefined: 0
};

/// The state behind two runs of tokens, from the state `left` behind the first of them and
/// what the second adds to a state of zeros, `right`. log_decay, the sum of g over the second, is
/// (B, H), (B, H, m) or undefined for 0, and at most 0.
///
/// Associative: combine(combine(a, b, g), c, h) = combine(a, combine(b, c, h), g + h). The result's
/// scale is the larger of the two, so that nothing overflows; gradients take scales as constants.
/// Throws ShapeError where shapes do not fit.
ScanState combine(const ScanState& left, const ScanState& right, const Variable& log_decay);

struct ScanInputs {
  Variable q, k;         // (B, N, H, D)
  Variable v;            // (B, N, H, E)
  Variable log_decay{};  // g <= 0: (B, N, H), or (B, N, H, D) without exponentials; undefined: 0
};

struct ScanOptions {
  /// The features are e^t, not t. Scales are chosen so that nothing overflows: the state's
  /// log_scale c_i = max(c_(i-1) + g_i, max_l t_il), and of each query the largest t is taken off.
  bool exponentials = false;
  /// W (m, D) or (H, m, D), a constant: t = W x, and of keys minus half_norm |x|²; only with
  /// exponentials. Undefined: t is x itself.
  Tensor projection{};
  double half_norm = 0;
  bool normalizer = true;      // z is kept, and out has its column
  bool final_state = true;     // result.state is wanted
  int64_t block = scan_block;  // at most that
};

struct ScanResult {
  /// (B, N, H, E + 1): S_iᵀ φ(q_i) and z_iᵀ φ(q_i); without a normaliser (B, N, H, E). With
  /// exponentials, relative to e^c_i and the largest feature of the query: see normalised().
  Variable out;
  ScanState state;  // behind the last token
};

/// From the state `initial` (null: zeros; its log_scale (B, H) only with exponentials). Operands of
/// any strides, all finite, but for log_decay, which may be -inf: then the state is forgotten.
///
/// Differentiable in all inputs and both results, scales being constants. It keeps, beside its
/// inputs, c and the state before every fourth block; features are computed again for the
/// gradients. Neither values nor bits at i depend on what comes after i. The same bits for any
/// number of threads. Every exponent that is taken is at most 0. Throws ShapeError where shapes or
/// dtypes do not fit.
ScanResult scan(const ScanInputs& inputs, const ScanState* initial = nullptr,
                const ScanOptions& options = {});

/// One token.
struct StepInputs {
  Tensor q, k, v;      // (B, H, m), (B, H, m), (B, H, E): features as they are
  Tensor log_decay{};  // (B, H) or (B, H, m)
  Tensor key_log{};    // (B, H) or (B, H, m): the features of the key are e^key_log k
};

enum class Normalizer {
  none,     // out = Sᵀ q
  query,    // also z·q, in the last column
  features  // out = sum_l q_l S_l / z_l
};

/// Takes the state one token on, in place (an undefined one is zeros), without gradients, and
/// returns its out (B, H, E), or (B, H, E + 1) with Normalizer::query; relative to e^log_scale,
/// which exists where there is a key_log.
Tensor scan_step(ScanState& state, const StepInputs& inputs, Normalizer normalizer);

}  // namespace longhand::attention

// Delta rules: scans that correct the state towards v_i in the direction of k_i, instead of only
// adding to it.
//
//   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k_i (v_i - S'_iᵀ r_i)ᵀ,   out_i = S_iᵀ q_i
//
// or, if values are written with separate keys u, S_i = S'_i - β_i k_i (S'_iᵀ r_i)ᵀ + u_i v_iᵀ.
//
// With r = k and g = 0 it is DeltaNet (Schlag et al. 2021, arXiv 2102.11174; Yang et al. 2024,
// arXiv 2406.06484); with one g per head, gated DeltaNet (Yang et al. 2024, arXiv 2412.06464); with
// one per channel, Kimi delta attention (Kimi Team 2025, arXiv 2510.26692). A separate r gives
// transitions diag(e^g) plus any matrix of rank one; with u as well it is RWKV-7
// (Peng et al. 2025, arXiv 2503.14456).
#pragma once

#include <memory>

#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens per block of a long sequence; see scan_block.
inline constexpr int64_t delta_block = 48;

/// Operands of a delta rule, or one X per operand, such as its gradient. All but q and g may have n
/// steps per token, (B, n N, H, .): g decays before the first step, q reads after the last.
template <class X>
struct DeltaOperands {
  X q, k;         // (B, N, H, m)
  X v;            // (B, N, H, E)
  X beta{};       // (B, N, H); undefined: 1
  X log_decay{};  // g <= 0: (B, N, H) or, if n = 1, (B, N, H, m); undefined: 0
  X read{};       // r (B, N, H, m); undefined: k
  X write{};      // u (B, N, H, m); undefined: β k

  /// Applies f to each of them, in this order.
  template <class F>
  auto each(F f) const -> DeltaOperands<decltype(f(q))> {
    return {f(q), f(k), f(v), f(beta), f(log_decay), f(read), f(write)};
  }
};
using DeltaInputs = DeltaOperands<Variable>;

struct DeltaOptions {
  bool final_state = true;  // return result.state
  int64_t block = 0;        // tokens per block, at most max_scan_block; 0: chosen by shape
  /// For sequences of a single block, the weights of token pairs and the errors are kept for the
  /// gradients if they take at most this many bytes.
  int64_t most_kept = int64_t{16} << 20;
  /// The parts before this one: the rule starts from the state after them. Null: there are none.
  /// Excludes an initial and a final state.
  std::shared_ptr<const Join> join{};
};

struct DeltaResult {
  Variable out;      // (B, N, H, E)
  Variable state{};  // S (B, H, m, E) after the last token
};

/// Applies the delta rule from the state `initial` (B, H, m, E); undefined: zeros. Operands may
/// have any strides. They must be finite, except for log_decay: -inf resets the state. A token with
/// g = 0, with k = 0 or β = 0, and with no u or u = 0, leaves the state unchanged.
///
/// Both results are differentiable with respect to all inputs. For the gradients, saves the inputs,
/// the state before every fourth block, and what `most_kept` allows. The result at i does not
/// depend on later tokens, bit for bit. Bitwise identical for any number of threads; each head of a
/// sequence is a task. All exponentials have exponents of at most 0. Throws ShapeError if shapes or
/// dtypes do not match.
DeltaResult delta_scan(const DeltaInputs& inputs, const Variable& initial = {},
                       const DeltaOptions& options = {});

/// Advances the state S (B, H, m, E) by one token, whose operands have no axis N, in place and
/// without gradients; an undefined state means zeros. Returns out (B, H, E) of the dtype of q. The
/// state, a sum of corrections over all tokens, is f64 whatever the dtype of the operands, and so
/// are the sums read from it. Throws ShapeError if shapes do not match.
Tensor delta_step(Tensor& state, const DeltaOperands<Tensor>& inputs);

}  // namespace longhand::attention

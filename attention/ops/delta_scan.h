// Delta rules: a scan whose state is corrected towards v_i in the direction of k_i, instead of
// only added to.
//
//   S'_i = diag(e^{g_i}) S_(i-1),   S_i = S'_i + β_i k_i (v_i - S'_iᵀ r_i)ᵀ,   out_i = S_iᵀ q_i
//
// or, if values are written with keys u of their own, S_i = S'_i - β_i k_i (S'_iᵀ r_i)ᵀ + u_i v_iᵀ.
//
// With r = k and g = 0 it is DeltaNet (Schlag et al. 2021, arXiv 2102.11174; Yang et al. 2024, arXiv
// 2406.06484); with one g a head, gated DeltaNet (Yang et al. 2024, arXiv 2412.06464); with one a
// channel, Kimi delta attention (Kimi Team 2025, arXiv 2510.26692). An r of its own gives every
// transition diag(e^g) plus a matrix of rank one; with u as well it is RWKV-7 (Peng et al. 2025, arXiv
// 2503.14456).
#pragma once

#include <memory>

#include "longhand/autograd/join.h"
#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// Tokens of a block of a long sequence; see scan_block.
inline constexpr int64_t delta_block = 48;

/// What a delta rule reads; or something of each of these operands, such as their gradients. Operands but q and g may
/// have n steps for each token, (B, n N, H, .): it decays before the first and is read after the last of them.
template <class X>
struct DeltaOperands {
  X q, k;         // (B, N, H, m)
  X v;            // (B, N, H, E)
  X beta{};       // (B, N, H); undefined: 1
  X log_decay{};  // g <= 0: (B, N, H) or, if n = 1, (B, N, H, m); undefined: 0
  X read{};       // r (B, N, H, m); undefined: k
  X write{};      // u (B, N, H, m); undefined: β k

  /// f of each of them, in this order.
  template <class F>
  auto each(F f) const -> DeltaOperands<decltype(f(q))> {
    return {f(q), f(k), f(v), f(beta), f(log_decay), f(read), f(write)};
  }
};
using DeltaInputs = DeltaOperands<Variable>;

struct DeltaOptions {
  bool final_state = true;  // return result.state
  int64_t block = 0;        // tokens of a block, at most max_scan_block; 0: chosen by shape
  /// Of sequences of one block, the weights of pairs of tokens and the errors are kept for the gradients if
  /// they need at most this many bytes.
  int64_t most_kept = int64_t{16} << 20;
  /// The parts before this one: the rule begins with the state after them. Null: there are none. Without
  /// an initial state and a final one.
  std::shared_ptr<const Join> join{};
};

struct DeltaResult {
  Variable out;      // (B, N, H, E)
  Variable state{};  // S (B, H, m, E) after the last token
};

/// The delta rule from the state `initial` (B, H, m, E); undefined: zeros. Operands may have any
/// strides. They must be finite, except for log_decay: -inf resets the state. A token with k = 0 or
/// β = 0, g = 0 and no u, or u = 0, leaves the state as it is.
///
/// Both results are differentiable with respect to all inputs. For the gradients, saves the inputs,
/// the state before every fourth block, and what `most_kept` allows. The result at i, bit by bit, does
/// not depend on later tokens. Gives the same bits for any number of threads; each head of a sequence is one task. Every
/// exponential is taken of an exponent of at most 0. Throws ShapeError if shapes or dtypes do not
/// match.
DeltaResult delta_scan(const DeltaInputs& inputs, const Variable& initial = {},
                       const DeltaOptions& options = {});

/// Advances the state S (B, H, m, E) by one token, whose operands have no axis N, in place and without
/// gradients; an undefined state means zeros. Returns out (B, H, E) of the dtype of q. The state, which is
/// a sum of corrections of all tokens, is f64 whatever the dtype of the operands, and so are the sums
/// read from it. Throws ShapeError if shapes do not match.
Tensor delta_step(Tensor& state, const DeltaOperands<Tensor>& inputs);

}  // namespace longhand::attention

// The operations of RWKV-7 per token before and after its delta rule, each in one pass.
#pragma once

#include "longhand/attention/ops/delta_scan.h"

namespace longhand::attention {

struct Rwkv7Keys {
  Variable k;                     // (B, N, H, D)
  Variable decay, rate;           // w and z, of the shape of k
  Variable removal, replacement;  // ξ and α (H, D)
};

/// All operands of the rule except q and v: with a = σ(z) and κ = k ∘ ξ / sqrt(|k ∘ ξ|² + eps)
///
///   log_decay g = -e^(-1/2) σ(w),   k: a ∘ κ,   read: κ ∘ e^-g,   write: k ∘ (1 + (a - 1) ∘ α)
///
/// Saves k, z, ξ, α and g for the gradients. Throws ShapeError if shapes or dtypes do not match.
DeltaInputs rwkv7_operands(const Rwkv7Keys& inputs, double eps);

struct Rwkv7Reads {
  Variable reads;              // o (B, N, H, D)
  Variable q{}, write{}, v{};  // of the shape of o; all three, or none: no bonus
  Variable gate{};             // of the shape of o; undefined: 1
  Variable weight{}, bias{};   // of the norm, (H, D); both, or none: no norm
  Variable bonus{};            // ρ (H, D), defined if q is
};

/// (norm(o) + (q · (ρ ∘ write)) v) ∘ gate, norm(o) = (o - mean o) / sqrt(variance + eps) ∘ weight +
/// bias per head. Saves its inputs. Throws ShapeError if shapes or dtypes do not match.
Variable rwkv7_result(const Rwkv7Reads& inputs, double eps);

}  // namespace longhand::attention

// What RWKV-7's delta rule removes from its state and what it writes, made from the same key.
#pragma once

#include "longhand/attention/ops/delta_scan.h"

namespace longhand::attention {

struct RemovalInputs {
  Variable k;                     // (B, N, H, D)
  Variable decay, rate;           // w and z, of the shape of k
  Variable removal, replacement;  // ξ and α (H, D)
};

/// All operands of the rule but q and v, in one pass: with a = σ(z) and κ = k ∘ ξ / sqrt(|k ∘ ξ|² + eps)
///
///   log_decay g = -e^(-1/2) σ(w),   k: a ∘ κ,   read: κ ∘ e^-g,   write: k ∘ (1 + (a - 1) ∘ α)
///
/// Saves k, z, ξ, α and g for the gradients. Throws ShapeError if shapes or dtypes do not match.
DeltaInputs removal(const RemovalInputs& inputs, double eps);

}  // namespace longhand::attention

// The scan of a single token, in place, for decoders.
#pragma once

#include "longhand/attention/ops/normalised.h"
#include "longhand/attention/ops/scan.h"

namespace longhand::attention {

/// Inputs of scan_step(): one token.
struct StepInputs {
  Tensor q, k, v;      // (B, H, m), (B, H, m), (B, H, E); q and k are features
  Tensor log_decay{};  // (B, H) or (B, H, m)
  Tensor key_log{};    // (B, H) or (B, H, m): the features of the key are e^key_log k
};

/// Heads per task of a decoder, if a token reads `numbers` elements per head. Computing a small
/// head would take less time than starting a task.
int64_t heads_of_task(int64_t numbers);

enum class Normalizer {
  none,      // out = Sᵀ q
  query,     // out = Sᵀ q / z·q
  features,  // out = sum_l q_l S_l / z_l
  column     // Sᵀ q, and z·q in the last column, in f64, for joining with other sums
};

/// Advances the state by one token, in place and without gradients; an undefined state means zeros.
/// The state and its sums are f64 whatever the dtype of the inputs, because tokens are added one by
/// one, and in f32 a sum over 65,536 of them loses up to 3 digits. Returns out (B, H, E) of the
/// dtype of q, or (B, H, E + 1) in f64 with Normalizer::column; the guard applies to
/// Normalizer::query. With a key_log the state has a log_scale, and sums are relative to
/// e^log_scale. Throws ShapeError if shapes do not match.
Tensor scan_step(ScanState& state, const StepInputs& inputs, Normalizer normalizer,
                 const Guard& guard = {});

}  // namespace longhand::attention

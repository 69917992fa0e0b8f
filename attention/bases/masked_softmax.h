// Masking of scores before a softmax.
#pragma once

#include <limits>

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"

namespace longhand::attention {

/// The score of a masked pair: e^never = 0.
inline constexpr double never = -std::numeric_limits<double>::infinity();

/// The scores where keep (u8) is 1, otherwise -inf; both broadcast.
inline Variable masked_scores(const Tensor& keep, const Variable& scores) {
  return where(keep, scores, never);
}

/// The scores (…, N, M) with -inf for masked keys: keys j > i if causal, otherwise keys from
/// lengths[b] on (undefined: none).
inline Variable masked_scores(const Variable& scores, bool causal, const Tensor& lengths) {
  if (causal) return where(causal_keep(scores.size(-1)), scores, never);
  if (!lengths.defined()) return scores;
  return where(real_tokens(lengths, scores.size(-1)).permute({0, 2, 3, 1}), scores, never);
}

}  // namespace longhand::attention

// Masking of scores before a softmax.
#pragma once

#include "longhand/attention/mask.h"
#include "longhand/autograd/ops.h"
#include "longhand/core/dry_run.h"

namespace longhand::attention {

/// The scores where keep (u8) is 1, and -inf elsewhere; both broadcast.
inline Variable masked_scores(const Tensor& keep, const Variable& scores) {
  return where(keep, scores, never);
}

/// (N, N) u8, 1 where j <= i: the keys j that query i may attend to in causal attention.
inline Tensor causal_keep(int64_t tokens) {
  Tensor keep = Tensor::empty({tokens, tokens}, DType::u8);
  if (is_dry()) return keep;
  uint8_t* out = keep.data<uint8_t>();
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) *out++ = j <= i;
  return keep;
}

/// The scores (…, N, M) with -inf for masked keys: keys j > i if causal, otherwise keys from
/// lengths[b] on (undefined: none).
inline Variable masked_scores(const Variable& scores, bool causal, const Tensor& lengths) {
  if (causal) return where(causal_keep(scores.size(-1)), scores, never);
  if (!lengths.defined()) return scores;
  return where(real_tokens(lengths, scores.size(-1)).permute({0, 2, 3, 1}), scores, never);
}

}  // namespace longhand::attention

// Ring attention: exact attention whose keys and values are passed from part to part of a sequence.
#pragma once

#include <memory>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/join.h"

namespace longhand::attention {

/// softmax_attention() of the queries of this part to the keys of all parts of the same sequences, for q
/// (B, n, H, D), k and v (B, n, Hkv, D): (B, n, H, D). Besides its own keys and values, a part has those of
/// at most two others: while it computes with those of one part, it passes them on, P - 1 times in the
/// forward pass. In the backward pass their gradients are passed on with them, P times.
/// options.key_lengths are the lengths of whole sequences and apply to queries too; query_lengths,
/// first_query and first_key are not used. Liu, Zaharia and Abbeel 2023 (arXiv 2310.01889).
///
/// Throws as softmax_attention() does, and ConfigError for a log_decay, a key_bias, a pattern or sigmoid weights.
Variable ring_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SoftmaxAttentionOptions& options,
                        const std::shared_ptr<const Join>& join);

}  // namespace longhand::attention

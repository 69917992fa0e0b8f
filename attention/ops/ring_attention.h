// Ring attention: exact attention, with keys and values passed from part to part of a sequence.
#pragma once

#include <memory>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/join.h"

namespace longhand::attention {

/// softmax_attention() of the queries of this part over the keys of all parts of the same
/// sequences, for q (B, n, H, D), k and v (B, n, Hkv, D): (B, n, H, D). Besides its own keys and
/// values, a part holds those of at most two others: it passes those of one part on while computing
/// with them, P - 1 times in the forward pass. In the backward pass, gradients travel with them, P
/// times. options.key_lengths are those of whole sequences, also for queries; query_lengths,
/// first_query and first_key are unused. Liu, Zaharia and Abbeel 2023 (arXiv 2310.01889).
///
/// Throws as softmax_attention() does; ConfigError for a log_decay, key_bias, pattern or sigmoid.
Variable ring_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SoftmaxAttentionOptions& options,
                        const std::shared_ptr<const Join>& join);

}  // namespace longhand::attention

// Exact softmax attention when other parts of the same sequences hold some of the keys.
#pragma once

#include <memory>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/join.h"

namespace longhand::attention {

/// softmax_attention() of queries that all parts have, such as landmarks, over the keys of all
/// parts. The key lengths of `options` are those of this part; there are no query lengths. Parts
/// exchange results and their logarithms, whose size does not depend on the number of tokens.
Variable joined_softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                                  const SoftmaxAttentionOptions& options,
                                  const std::shared_ptr<const Join>& join);

}  // namespace longhand::attention

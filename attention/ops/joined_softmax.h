// Exact softmax attention to keys of which other parts of the same sequences have some.
#pragma once

#include <memory>

#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/autograd/join.h"

namespace longhand::attention {

/// softmax_attention() of queries that all parts have, such as landmarks, to the keys of all parts. The
/// lengths of options are those of this part; queries have none. Parts exchange results and their
/// logarithms, of a size that does not depend on the number of tokens.
Variable joined_softmax_attention(const Variable& q, const Variable& k, const Variable& v,
                                  const SoftmaxAttentionOptions& options,
                                  const std::shared_ptr<const Join>& join);

}  // namespace longhand::attention

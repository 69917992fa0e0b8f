// Common parts of variants whose state decays: scans and delta rules.
#pragma once

#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

/// The capabilities of a causal recurrence with a D x D state per head, computed from the tokens x;
/// `linear`: in v, which fails if the result is normalised.
Capabilities recurrence_capabilities(bool linear);

/// The option `norm` of recurrences whose results are normalised per head with a learned weight.
void describe_norm(OptionVisitor& v, bool& norm);

/// Lower bound on the cost of one head's scan: m features, values of width E, `bytes` per element.
Work scan_work(double tokens, double m, double E, double bytes);

/// log_decay (B, N, H) or (B, N, H, D), set to 0 at padding, where x = 0 alone would still give a
/// decay: padding must leave the state unchanged. Undefined lengths: no padding.
Variable without_decay_of_padding(const Variable& log_decay, const Tensor& lengths);

/// A token as sequences of length 1; undefined tensors stay undefined.
Inputs sequences_of(const Token& token);
/// The same for a decoder of `batch` sequences, with keys and values repeated for each of `heads`
/// heads. Throws ShapeError for a token of other shapes.
Inputs sequences_of(const Token& token, int64_t batch, int64_t heads);

}  // namespace longhand::attention

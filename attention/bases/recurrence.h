// What variants whose state decays have in common: of scans and of delta rules.
#pragma once

#include "longhand/attention/variant.h"
#include "longhand/core/schema.h"

namespace longhand::attention {

/// A causal recurrence with a state of D x D numbers per head, computed from the tokens x; `linear`: in
/// v, which a norm of the result is not.
Capabilities recurrence_capabilities(bool linear);

/// The option `norm` of recurrences whose heads have a norm with a learned weight.
void describe_norm(OptionVisitor& v, bool& norm);

/// What a scan of one head does at least, with features of m numbers, values of E and `bytes` a number.
Work scan_work(double tokens, double m, double E, double bytes);

/// log_decay (B, N, H) or (B, N, H, D), with 0 at padding: x is 0 there, which alone would be a decay
/// like any other, and padding must leave the state as it is. Undefined lengths: no padding.
Variable without_decay_of_padding(const Variable& log_decay, const Tensor& lengths);

/// A token as sequences of one; what is undefined stays undefined.
Inputs sequences_of(const Token& token);
/// The same for a decoder of `batch` sequences and `heads` heads: keys and values are repeated for each of them. Throws
/// ShapeError for a token of other shapes.
Inputs sequences_of(const Token& token, int64_t batch, int64_t heads);

}  // namespace longhand::attention

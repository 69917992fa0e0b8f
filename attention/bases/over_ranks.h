// Sequences cut over ranks: operations of attention/ops of whole sequences, of which each rank has a part.
// Each is one exchange, forward and backward, of a size that does not depend on the number of tokens.
// Sequences that are not cut are the operation itself.
#pragma once

#include "longhand/attention/ops/delta_scan.h"
#include "longhand/attention/ops/scan.h"
#include "longhand/attention/ops/softmax_attention.h"
#include "longhand/nn/sequence_part.h"

namespace longhand::attention {

/// The largest x of all ranks, element by element.
Tensor max_over_ranks(const Tensor& x, const nn::SequencePart& part);
/// The largest x of the ranks before this one, element by element; -inf if there is none.
Tensor max_before_part(const Tensor& x, const nn::SequencePart& part);

/// The sum of x over the ranks before this one. Differentiable.
Variable sum_before_part(const Variable& x, const nn::SequencePart& part);
/// log Σ e^x over the ranks before this one, element by element; about -1e30 if there is none.
/// Differentiable.
Variable log_sum_exp_before_part(const Variable& x, const nn::SequencePart& part);

/// ScanResult::out for the tokens of the part: a scan from the state after the parts before it. Ranks exchange
/// the states that their parts give when started from zeros, and join them. Sun et al. 2025 (arXiv
/// 2502.07563).
Variable scan_over_ranks(const ScanInputs& inputs, const ScanOptions& options,
                         const nn::SequencePart& part);

/// DeltaResult::out for the tokens of the part. The state after a part is A S + B, S the one before it; ranks
/// exchange A and B, which one scan gives.
Variable delta_scan_over_ranks(const DeltaInputs& inputs, const nn::SequencePart& part);

/// softmax_attention() of queries that all ranks have, such as landmarks, to the keys of all parts. The
/// lengths of options are those of the part; queries have none.
Variable softmax_attention_over_ranks(const Variable& q, const Variable& k, const Variable& v,
                                      const SoftmaxAttentionOptions& options,
                                      const nn::SequencePart& part);

}  // namespace longhand::attention

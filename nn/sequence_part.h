// Sequences cut over ranks: what a rank exchanges with those that have the other parts. Differentiable,
// and collective where a communicator is used.
#pragma once

#include "longhand/autograd/ops.h"
#include "longhand/nn/module.h"

namespace longhand::nn {

/// How many real tokens the part has of sequences of these lengths (B) i32: from 0 to part.tokens(). The
/// lengths themselves if they are undefined or sequences are not cut.
Tensor lengths_of_part(const Tensor& lengths, const SequencePart& part);

/// The sum of x over the ranks, x itself if sequences are not cut.
Variable sum_of_parts(const Variable& x, const SequencePart& part);

/// (B, N, …) with the tokens of all ranks, for each x (B, n, …); in one exchange.
Variables whole_sequences(const Variables& parts, const SequencePart& part);
/// The tokens of this part, (B, n, …), of x (B, N, …); from token N on zeros.
Variable tokens_of_part(const Variable& x, const SequencePart& part);

/// (B, N, H / P, …) for each x (B, n, H, …), in one exchange: whole sequences of the heads from rank ·
/// H / P on. H may differ. Jacobs et al. 2023 (arXiv 2309.14509). Throws ShapeError unless the number
/// of ranks P divides every H.
Variables heads_of_sequences(const Variables& parts, const SequencePart& part);
/// The inverse for one tensor: (B, n, H, …) for x (B, N, H / P, …).
Variable tokens_of_heads(const Variable& x, const SequencePart& part);

/// x (B, n, …) between the `before` tokens in front of it and the `after` tokens behind it, which other
/// ranks have: (B, before + n + after, …). Where there are none, zeros.
Variable with_neighbours(const Variable& x, const SequencePart& part, int64_t before,
                         int64_t after);

/// The tokens of this part of depthwise_conv1d() of whole sequences, for x (B, n, C) and the lengths of
/// the whole.
Variable conv_over_ranks(const Variable& x, const Variable& weight,
                         const DepthwiseConvOptions& options, const SequencePart& part);

}  // namespace longhand::nn

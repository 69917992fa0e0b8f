// Sequences in blocks of the same number of tokens; the last block may be shorter.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// x (B, N, …) with `before` zero tokens before it and `after` zero tokens after it, if positive.
Variable padded(const Variable& x, int64_t before, int64_t after);

/// x (B, N, H, D) as (B, blocks, block, H, D), padded with zeros after the last token.
Variable in_blocks(const Variable& x, int64_t block);

/// The number of blocks of each sequence that have real tokens, (B) i32; these come first.
/// Undefined if the lengths are.
Tensor filled_blocks(const Tensor& lengths, int64_t block);

/// f(number of real tokens) for each block, f(1) for a block without any: (B or 1, blocks, 1, 1).
Tensor of_block_sizes(const Tensor& lengths, int64_t tokens, int64_t block, DType dtype,
                      double (*f)(double));

/// The means (B, blocks, H, D) of the real tokens per block, for x (B, N, H, D), 0 at padding.
Variable block_means(const Variable& x, const Tensor& lengths, int64_t block);

}  // namespace longhand::attention

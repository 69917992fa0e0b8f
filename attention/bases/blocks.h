// Sequences in blocks of equally many tokens, the last of which may be shorter.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// x (B, N, …) with tokens of zeros before and after it, none for numbers below 1.
Variable padded(const Variable& x, int64_t before, int64_t after);

/// x (B, N, H, D) as (B, blocks, block, H, D), with zeros after the last token.
Variable in_blocks(const Variable& x, int64_t block);

/// How many blocks of each sequence have real tokens, (B) i32: they are the first ones. Undefined if
/// the lengths are.
Tensor filled_blocks(const Tensor& lengths, int64_t block);

/// f of the number of real tokens of each block, 1 for a block that has none: (B or 1, blocks, 1, 1).
Tensor of_block_sizes(const Tensor& lengths, int64_t tokens, int64_t block, DType dtype,
                      double (*f)(double));

/// The means (B, blocks, H, D) of the real tokens of each block, for x (B, N, H, D) that is 0 at padding.
Variable block_means(const Variable& x, const Tensor& lengths, int64_t block);

}  // namespace longhand::attention

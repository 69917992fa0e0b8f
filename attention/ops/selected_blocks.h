// Softmax attention of each query to earlier tokens of its own block, and to earlier blocks that it
// selects. Lu et al. 2025 (arXiv 2502.13189), eq. 3-6.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// softmax(scale QKᵀ) V for q (B, N, H, D), k and v (B, N, Hkv, D) with any strides: (B, N, H, D).
/// Query i attends to keys j <= i of its own block of `block` tokens and to the blocks
/// lists[b, h, i, :], earlier ones in increasing order, terminated by -1 if there are fewer than
/// `most`; lists is (B, H, N, most) i32. Differentiable; lists are constants. Memory and products
/// are only for the keys attended to. Throws ShapeError if shapes or dtypes do not match.
Variable selected_blocks_attention(const Variable& q, const Variable& k, const Variable& v,
                                   const Tensor& lists, int64_t block, double scale);

}  // namespace longhand::attention

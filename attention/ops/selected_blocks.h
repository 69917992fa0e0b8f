// Softmax attention of each query to the tokens before it in its own block, and to earlier blocks that it selects. Lu et
// al. 2025 (arXiv 2502.13189), eq. 3-6.
#pragma once

#include "longhand/autograd/variable.h"

namespace longhand::attention {

/// softmax(scale QKᵀ) V over the keys j <= i of the block of query i, of `block` tokens, and of the blocks
/// lists[b, h, i, :], earlier ones in increasing order, ended by -1 if there are fewer: q (B, N, H, D), k and v
/// (B, N, Hkv, D) with any strides, lists (B, H, N, most) i32. Returns (B, N, H, D). Differentiable; gradients treat
/// the lists as constants. Memory and products are those of the keys that are attended to.
///
/// Throws ShapeError if shapes or dtypes do not match.
Variable selected_blocks_attention(const Variable& q, const Variable& k, const Variable& v,
                                   const Tensor& lists, int64_t block, double scale);

}  // namespace longhand::attention

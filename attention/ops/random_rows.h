// Random scores of pairs of positions, and their softmax.
#pragma once

#include <cstdint>

#include "longhand/core/random.h"
#include "longhand/core/tensor.h"

namespace longhand::attention {

/// R (H, n, n) with R_ij ~ N(0, spread²), a function of the generator, the head, i and j alone; or,
/// with `weights`, softmax(R) over the keys j <= i if causal, otherwise over all keys; 0 elsewhere.
Tensor random_rows(const Generator& generator, int64_t H, int64_t n, double spread, bool weights,
                   bool causal, DType dtype);

}  // namespace longhand::attention

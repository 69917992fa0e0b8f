// Common to operations along one axis.
#pragma once

#include <algorithm>
#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand::ops {

/// The memory of a dense tensor as a row-major (outer, count, inner), where count is the size of
/// the given axis.
struct Middle {
  int64_t outer, count, inner;

  Middle(const Tensor& dense, int axis) {
    count = dense.size(axis);
    inner = count > 1 ? dense.strides()[axis] : 1;
    outer = dense.numel() / std::max<int64_t>(1, count * inner);
  }
};

}  // namespace longhand::ops

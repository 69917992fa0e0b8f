// What operations along one axis share.
#pragma once

#include <algorithm>
#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand::ops {

/// A dense tensor as it lies in memory, seen from one axis: (outer, count, inner), row-major, where
/// count is the axis.
struct Middle {
  int64_t outer, count, inner;

  Middle(const Tensor& dense, int axis) {
    count = dense.size(axis);
    inner = count > 1 ? dense.strides()[axis] : 1;
    outer = dense.numel() / std::max<int64_t>(1, count * inner);
  }
};

}  // namespace longhand::ops

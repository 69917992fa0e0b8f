// Common to sums and means over axes.
#pragma once

#include <string_view>

#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/reduce.h"

namespace longhand::ops {

/// The axes of a shape to reduce, checked: those named, or all if none are.
struct Reduction {
  ShortVector<int> axes;  // ascending
  Shape from;
  Shape kept;         // `from` with size 1 along the axes
  int64_t count = 1;  // elements of each sum

  /// Throws ShapeError unless x has a float dtype, or if an axis is out of range or named twice.
  Reduction(std::string_view op, const Variable& x, const ShortVector<int>& named)
      : from(x.shape()), kept(x.shape()) {
    check_float(op, x);
    const Shape& shape = x.shape();
    unsigned seen = 0;
    for (int axis : named) {
      const int i = shape.index(axis);
      check<ShapeError>(!(seen >> i & 1), op, ": axis ", i, " of ", shape, " is named twice");
      seen |= 1u << i;
    }
    for (int i = 0; i < shape.rank(); ++i) {
      if (!named.empty() && !(seen >> i & 1)) continue;
      axes.push_back(i);
      kept[i] = 1;
      count *= shape[i];
    }
  }

  /// Returns the sums, divided by a number.
  Tensor reduce(const Tensor& x, double divisor, bool keep_axes) const {
    Tensor out = Tensor::empty_ordered(kept, x.dtype(), x.strides());
    kernels::sum_axes_into(out, x, axes, divisor);
    for (size_t i = axes.size(); i-- > 0 && !keep_axes;) out = out.squeeze(axes[i]);
    return out;
  }

  /// Broadcasts a result of reduce() back to the shape before the reduction: a view.
  Tensor repeat(Tensor reduced) const {
    if (reduced.rank() != from.rank())
      for (int axis : axes) reduced = reduced.unsqueeze(axis);
    return reduced.expand(from);
  }
};

}  // namespace longhand::ops

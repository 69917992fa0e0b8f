// Shared by operations along rows.
#pragma once

#include <algorithm>
#include <optional>

#include "longhand/autograd/ops/pointwise.h"
#include "longhand/core/kernels/elementwise.h"
#include "longhand/core/kernels/rows.h"
#include "longhand/core/parallel.h"
#include "longhand/core/simd.h"
#include "longhand/core/view.h"

namespace longhand::ops {

/// The number of rows of this width per task.
inline int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, kernels::elements_per_task / std::max<int64_t>(1, width));
}

/// Calls f(r), a kernel for simd(), for every row r, in parallel.
template <class F>
void for_rows(int64_t count, int64_t width, F f) {
  parallel_for(count, rows_per_task(width), [&](int64_t begin, int64_t end) {
    simd([&] {
      for (int64_t r = begin; r < end; ++r) f(r);
    });
  });
}

/// Returns uninitialised memory of x's shape with another size of the last axis, with rows in the
/// memory order of x.
inline Tensor empty_rows_like(const Tensor& x, int64_t width) {
  Shape shape = x.shape();
  Strides order = x.strides();
  shape[-1] = width;
  order[-1] = 0;  // innermost, whatever its stride in x
  return Tensor::empty_ordered(shape, x.dtype(), order);
}

/// Where a kernel writes a gradient: to = beta to + g; null if it is not required.
template <class T>
struct GradientTo {
  T* to = nullptr;
  T beta = 0;

  explicit operator bool() const { return to != nullptr; }
};

/// Memory with these strides (of a dense tensor) for a gradient, if the slot needs one: the slot's
/// own memory if it has these strides, otherwise a temporary that finish() adds to it. Write
/// grad = beta grad + g, then call finish().
class StridedGradient {
 public:
  StridedGradient(GradSlot& slot, const Strides& strides) {
    if (!slot) return;
    to_.emplace(slot.accumulate());
    const Tensor& own = to_->grad;
    direct_ = has_strides(own, strides);
    grad = direct_ ? own : Tensor::empty_ordered(own.shape(), own.dtype(), strides);
    beta = direct_ ? to_->beta : 0;
  }
  template <class T>
  GradientTo<T> in() {
    if (!to_) return {};
    return {grad.data<T>(), static_cast<T>(beta)};
  }
  void finish() {
    if (to_ && !direct_) accumulate_into(to_->grad, to_->beta, grad);
  }

  Tensor grad;
  double beta = 0;

 private:
  std::optional<GradSlot::Accumulator> to_;
  bool direct_ = false;
};

/// Calls write(grad, beta), which must compute grad = beta grad + g, on memory with these strides
/// (of a dense tensor): the slot's own if they match, else a temporary that is added to it.
template <class F>
void accumulate_with_strides(GradSlot& slot, const Strides& strides, F write) {
  StridedGradient to(slot, strides);
  write(to.grad, to.beta);
  to.finish();
}

/// The same with x's strides, in place over x if x has no other owner: write() must then read each
/// element of x before it writes the same element of the gradient.
template <class F>
void accumulate_over(GradSlot& slot, Tensor& x, F write) {
  if (!slot.fresh() || !x.unique()) return accumulate_with_strides(slot, x.strides(), write);
  write(x, 0.0);
  slot.take(x);
}

}  // namespace longhand::ops

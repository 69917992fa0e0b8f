// Common to element-wise operations.
#pragma once

#include <string_view>

#include "longhand/autograd/variable.h"
#include "longhand/core/kernels/elementwise.h"

namespace longhand::ops {

/// Throws ShapeError naming the operation and both dtypes unless they are equal.
inline void check_same_dtype(std::string_view op, DType a, DType b) {
  check<ShapeError>(a == b, op, ": dtypes ", a, " and ", b, " differ");
}

/// Throws ShapeError naming the operation unless x is defined and of f32 or f64.
inline void check_float(std::string_view op, const Variable& x) {
  check<ShapeError>(x.defined(), op, ": an input is undefined");
  check<ShapeError>(is_float(x.dtype()), op, ": expected f32 or f64, got ", x.dtype());
}

/// Both checks, for an operation of two inputs.
inline void check_float_pair(std::string_view op, const Variable& a, const Variable& b) {
  check_float(op, a);
  check_float(op, b);
  check_same_dtype(op, a.dtype(), b.dtype());
}

inline bool repeats_elements(const Tensor& t) {
  for (int i = 0; i < t.rank(); ++i)
    if (t.size(i) > 1 && t.strides()[i] == 0) return true;
  return false;
}

/// Returns uninitialised memory for an element-wise result of tensors of one shape. Its axes have
/// the memory order of those of the first tensor that was not broadcast.
template <class... Tensors>
Tensor empty_for_pointwise(const Tensor& x, const Tensors&... more) {
  const Tensor* like = nullptr;
  for (const Tensor* t : {&x, &more...})
    if (!like && !repeats_elements(*t)) like = t;
  return Tensor::empty_ordered(x.shape(), x.dtype(), (like ? *like : x).strides());
}

/// Returns f(x...), element by element, for tensors of one shape and one float dtype; f takes and
/// returns float or double.
template <class F, class... Tensors>
Tensor pointwise(F f, const Tensor& x, const Tensors&... more) {
  Tensor out = empty_for_pointwise(x, more...);
  dispatch_float(x.dtype(), [&]<class T>() {
    kernels::elementwise<T>(out, f, kernels::in<T>(x), kernels::in<T>(more)...);
  });
  return out;
}

/// Adds f(x...), element by element, to the gradient of an input; see pointwise().
template <class F, class... Tensors>
void accumulate_pointwise(GradSlot& slot, F f, const Tensors&... x) {
  const GradSlot::Accumulator to = slot.accumulate();
  dispatch_float(to.grad.dtype(), [&]<class T>() {
    kernels::elementwise_accumulate<T>(to.grad, to.beta, f, kernels::in<T>(x)...);
  });
}

/// The operation y = f(x) of one input, whose gradient is df(dy, x).
template <class F, class G>
Variable pointwise_of_input(std::string_view op, const Variable& x, F f, G df) {
  check_float(op, x);
  return record(op, pointwise(f, x.value()), {x},
                [x = x.value(), df](const Tensor& dy, std::span<GradSlot> dx) {
                  accumulate_pointwise(dx[0], df, dy, x);
                });
}

/// The operation y = f(x) whose gradient is df(dy, y): it keeps the result, which the next
/// operation usually keeps as well.
template <class F, class G>
Variable pointwise_of_result(std::string_view op, const Variable& x, F f, G df) {
  check_float(op, x);
  const Tensor y = pointwise(f, x.value());
  return record(op, y, {x}, [y, df](const Tensor& dy, std::span<GradSlot> dx) {
    accumulate_pointwise(dx[0], df, dy, y);
  });
}

}  // namespace longhand::ops

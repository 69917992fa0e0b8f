// Operands of attention ops: (B, N, H, D) in memory, lengths, and the gradients of q, k and v.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "longhand/autograd/ops.h"
#include "longhand/core/error.h"
#include "longhand/core/tensor.h"

namespace longhand::attention::tile {

/// Access to a tensor (B, N, H, D) for which has_contiguous_rows() holds.
template <class T>
struct Heads {
  T* data;
  int64_t batch, token, head;

  explicit Heads(Tensor& t) : Heads(t.data<T>(), t) {}
  explicit Heads(const Tensor& t) : Heads(t.data<std::remove_const_t<T>>(), t) {}
  T* at(int64_t b, int64_t n, int64_t h) const { return data + b * batch + n * token + h * head; }

 private:
  // The stride of a single token is arbitrary, but kernels require one other than 0.
  Heads(T* first, const Tensor& t)
      : data(first),
        batch(t.strides()[0]),
        token(t.size(1) == 1 ? t.size(3) : t.strides()[1]),
        head(t.strides()[2]) {}
};

/// Whether the rows of D elements of x (B, N, H, D) are contiguous, and tokens do not share rows:
/// gemm_tile() requires nonzero strides.
inline bool has_contiguous_rows(const Tensor& x) {
  return (x.size(3) == 1 || x.strides()[3] == 1) && (x.size(1) == 1 || x.strides()[1] != 0);
}
/// x itself if it has contiguous rows, otherwise a row-major copy. The gradient of the result also
/// has contiguous rows.
inline Variable with_contiguous_rows(const Variable& x) {
  return has_contiguous_rows(x.value()) ? x : contiguous(x);
}
inline Tensor with_contiguous_rows(const Tensor& x) {
  return has_contiguous_rows(x) ? x : x.contiguous();
}

/// The elements of x; null if it is undefined.
template <class T, class X>
auto data_or_null(X& x) -> decltype(x.template data<T>()) {
  return x.defined() ? x.template data<T>() : nullptr;
}

/// Throws ShapeError, naming the operation and the operand, unless x has this dtype and shape.
inline void check_operand(const char* op, const char* name, const Tensor& x, DType dtype,
                          const Shape& shape) {
  check<ShapeError>(x.shape() == shape && x.dtype() == dtype, op, ": expected ", name, " ", dtype,
                    " of shape ", shape, ", got ", x.dtype(), " of shape ", x.shape());
}

/// Throws ShapeError, naming the operation, unless queries, keys and values have one float dtype.
inline void check_one_float_dtype(const char* op, DType q, DType k, DType v) {
  check<ShapeError>(is_float(q) && k == q && v == q, op, ": expected one float dtype, got q ", q,
                    ", k ", k, ", v ", v);
}

/// The lengths (B) i32, or n for all sequences if they are undefined. Throws ShapeError, naming
/// `what`, if the shape or dtype does not match or a length is not in [0, n].
inline std::vector<int32_t> lengths_or(const char* what, const Tensor& lengths, int64_t B,
                                       int64_t n) {
  if (!lengths.defined()) return std::vector<int32_t>(B, static_cast<int32_t>(n));
  check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{B}, what,
                    ": expected i32 of shape ", Shape{B}, ", got ", lengths.dtype(), " of shape ",
                    lengths.shape());
  auto values = lengths.to_vector<int32_t>();
  for (const int32_t length : values)
    check<ShapeError>(0 <= length && length <= n, what, ": expected values in [0, ", n, "], got ",
                      length);
  return values;
}

/// The destination of a gradient g: to = beta to + g, with beta 0 or 1.
struct Gradient {
  Tensor to;  // undefined: not required
  double beta = 0;
};

/// The destination of the gradient of an operand.
inline Gradient gradient_of(GradSlot& slot) {
  if (!slot) return {};
  const GradSlot::Accumulator to = slot.accumulate();
  return {to.grad, to.beta};
}
/// The gradient of an operand for operations that only add to it: 0 at first, or undefined.
inline Tensor begun_gradient(GradSlot& slot) {
  Gradient begun = gradient_of(slot);
  if (begun.to.defined() && begun.beta == 0) begun.to.fill(0);
  return begun.to;
}
/// The destinations of the gradients of queries, keys and values.
inline std::array<Gradient, 3> gradients_of(std::span<GradSlot> slots) {
  return {gradient_of(slots[0]), gradient_of(slots[1]), gradient_of(slots[2])};
}

}  // namespace longhand::attention::tile

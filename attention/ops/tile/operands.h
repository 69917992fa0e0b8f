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

/// (B, N, H, D), whose rows of D are contiguous.
template <class T>
struct Heads {
  T* data;
  int64_t batch, token, head;

  explicit Heads(Tensor& t)
      : data(t.data<T>()), batch(t.strides()[0]), token(t.strides()[1]), head(t.strides()[2]) {}
  explicit Heads(const Tensor& t)
      : data(t.data<std::remove_const_t<T>>()),
        batch(t.strides()[0]),
        token(t.strides()[1]),
        head(t.strides()[2]) {}
  T* at(int64_t b, int64_t n, int64_t h) const { return data + b * batch + n * token + h * head; }
};

/// (B, N, H, D) with contiguous rows of D; those of the gradient then are contiguous too.
inline Variable with_contiguous_rows(const Variable& x) {
  if (x.size(3) == 1 || x.value().strides()[3] == 1) return x;
  return reshape(reshape(x, {x.value().numel()}), x.shape());  // flattening copies
}

/// Lengths (B) i32 of at most n, or n for all where they are undefined. Throws ShapeError, saying
/// `what` they are.
inline std::vector<int32_t> lengths_or(const char* what, const Tensor& lengths, int64_t B,
                                       int64_t n) {
  if (!lengths.defined()) return std::vector<int32_t>(B, static_cast<int32_t>(n));
  check<ShapeError>(lengths.dtype() == DType::i32 && lengths.shape() == Shape{B}, what,
                    " must be i32 of shape ", Shape{B}, ", not ", lengths.dtype(), " of shape ",
                    lengths.shape());
  auto values = lengths.to_vector<int32_t>();
  for (const int32_t length : values)
    check<ShapeError>(0 <= length && length <= n, what, " holds ", length, ", not within 0 and ",
                      n);
  return values;
}

/// Where a gradient goes: to = beta to + g, with beta 0 or 1.
struct Gradient {
  Tensor to;  // undefined: not wanted
  double beta = 0;
};

/// Those of queries, keys and values.
inline std::array<Gradient, 3> gradients_of(std::span<GradSlot> slots) {
  std::array<Gradient, 3> all;
  for (size_t i = 0; i < all.size(); ++i)
    if (slots[i]) {
      const GradSlot::Accumulator to = slots[i].accumulate();
      all[i] = {to.grad, to.beta};
    }
  return all;
}

}  // namespace longhand::attention::tile

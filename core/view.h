// Views of memory, the form in which kernels take tensors, without graphs.
#pragma once

#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand {

/// `count` adjacent rows of `width` elements.
template <class T>
struct Rows {
  T* data;
  int64_t count, width;
  T* operator[](int64_t r) const { return data + r * width; }
};

/// A matrix of contiguous rows, row_stride elements apart, such as one head of a (B, T, H*D).
template <class T>
struct MatrixView {
  T* data;
  int64_t rows, cols, row_stride;
  T* operator[](int64_t r) const { return data + r * row_stride; }
};

/// Returns the tensor itself if its last axis has stride 1 and the axes before it are dense in some
/// order, otherwise a row-major copy.
Tensor row_dense(const Tensor& t);

namespace detail {
void check_row_dense(const Tensor& t);
}

/// Returns the rows along the last axis of a row_dense() tensor, in memory order; a scalar is one
/// row of one element. Tensors with equal strides have their rows in the same order.
template <class T>
Rows<T> rows(Tensor& t) {
  detail::check_row_dense(t);
  const int64_t width = t.rank() ? t.size(-1) : 1;
  return {t.data<T>(), width ? t.numel() / width : 0, width};
}

template <class T>
Rows<const T> rows(const Tensor& t) {
  detail::check_row_dense(t);
  const int64_t width = t.rank() ? t.size(-1) : 1;
  return {t.data<T>(), width ? t.numel() / width : 0, width};
}

/// Whether a tensor has these strides; those of axes of size 1 are ignored.
bool has_strides(const Tensor& t, const Strides& strides);

/// Returns the tensor itself if it has these strides, which must be dense, otherwise a copy.
Tensor with_strides(const Tensor& t, const Strides& strides);

/// Like with_strides(), with the strides of `like`, a dense tensor of the same shape.
Tensor with_strides_of(const Tensor& t, const Tensor& like);

}  // namespace longhand

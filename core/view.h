// What kernels see of tensors: memory, never graphs.
#pragma once

#include <cstdint>

#include "longhand/core/tensor.h"

namespace longhand {

/// `count` rows of `width` elements, one after the other.
template <class T>
struct Rows {
  T* data;
  int64_t count, width;
  T* operator[](int64_t r) const { return data + r * width; }
};

/// A matrix whose rows are contiguous and row_stride elements apart. A head of (B, T, H*D) is one.
template <class T>
struct MatrixView {
  T* data;
  int64_t rows, cols, row_stride;
  T* operator[](int64_t r) const { return data + r * row_stride; }
};

/// The tensor itself if its last axis is unit-stride and the axes before it are dense in some
/// order, else a row-major copy.
Tensor row_dense(const Tensor& t);

/// The rows along the last axis of a row_dense tensor, in the order of memory; a scalar is one row
/// of one element. Tensors with equal strides have equal orders.
template <class T>
Rows<T> rows(Tensor& t);
template <class T>
Rows<const T> rows(const Tensor& t);

/// Whether these are the strides of a tensor; where a size is 1 they do not matter.
bool has_strides(const Tensor& t, const Strides& strides);

/// The tensor itself if it has these strides (of a dense tensor), else a copy that has.
Tensor with_strides(const Tensor& t, const Strides& strides);

/// The tensor itself if it has these strides (where they matter), else a copy that has.
Tensor with_strides_of(const Tensor& t, const Tensor& like);

namespace detail {
void check_row_dense(const Tensor& t);
}

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

}  // namespace longhand

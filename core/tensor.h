// Tensor: a handle to shared memory with a shape, strides and an offset.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "longhand/core/dtype.h"
#include "longhand/core/shape.h"
#include "longhand/core/storage.h"

namespace longhand {

/// Copying a Tensor shares its memory; clone() copies it. Views (reshape, permute, slice, expand)
/// are O(1) and share memory too. A const Tensor gives const pointers only. Member functions throw
/// ShapeError if a shape, axis, index or dtype is invalid.
///
/// A tensor is dense if its elements fill their memory without holes in some order of the axes.
/// Operations keep that order for their results, so a permuted input gives a permuted result and
/// nothing needs to be copied.
class Tensor {
 public:
  /// An undefined tensor: it has no memory, and its shape is meaningless.
  Tensor() = default;

  /// Uninitialised memory, row-major.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32);
  /// Uninitialised dense memory with the axes in the same order as those of the strides `like`,
  /// which have the same rank.
  static Tensor empty_ordered(const Shape& shape, DType dtype, const Strides& like);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  /// A rank-0 tensor.
  static Tensor scalar(double value, DType dtype = DType::f32) { return full({}, value, dtype); }
  /// Wraps memory without a copy: `data` is the first element, strides are not negative, and
  /// `owner` keeps the memory alive. It is written only if the caller writes to the tensor.
  static Tensor borrow(const void* data, const Shape& shape, const Strides& strides, DType dtype,
                       std::shared_ptr<const void> owner);
  /// A copy of the values, in row-major order; their number must be shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape);
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape) {
    return from(std::span<const T>(values), shape);
  }

  bool defined() const { return storage_ != nullptr; }
  explicit operator bool() const { return defined(); }
  const Shape& shape() const { return shape_; }
  const Strides& strides() const { return strides_; }
  DType dtype() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t numel() const { return shape_.numel(); }
  /// Size of all elements; 0 if undefined.
  int64_t bytes() const { return defined() ? numel() * static_cast<int64_t>(size_of(dtype_)) : 0; }

  /// Row-major without holes.
  bool is_contiguous() const;
  /// Without holes in some order of the axes; see above.
  bool is_dense() const;

  /// A view of the same elements, in row-major order, with another shape. One size may be -1 and
  /// is then inferred. Throws if the strides do not allow a view.
  Tensor reshape(Shape shape) const;
  /// As reshape(), but returns an undefined tensor if the strides do not allow a view.
  Tensor try_reshape(Shape shape) const;
  /// Swaps two axes.
  Tensor transpose(int a, int b) const;
  /// Axis i of the result is axis order[i] of this tensor.
  Tensor permute(std::span<const int> order) const;
  Tensor permute(std::initializer_list<int> order) const {
    return permute(std::span<const int>(order.begin(), order.size()));
  }
  /// Elements begin, begin + step, … below end along an axis. Negative begin and end count from
  /// the end; step >= 1.
  Tensor slice(int axis, int64_t begin, int64_t end, int64_t step = 1) const;
  /// The elements at one index of an axis, which is removed.
  Tensor select(int axis, int64_t index) const;
  /// Broadcasts to a shape; repeated axes have stride 0.
  Tensor expand(const Shape& shape) const;
  Tensor unsqueeze(int axis) const;
  Tensor squeeze(int axis) const;
  /// The axes permuted to descending strides: row-major if the tensor is dense.
  Tensor in_memory_order() const;

  /// This tensor if it is row-major, otherwise a row-major copy.
  Tensor contiguous() const;
  /// A copy with its own memory and the same order of axes.
  Tensor clone() const;
  /// A copy converted to a dtype, or this tensor if it has it. Floats are truncated to integers.
  Tensor to(DType dtype) const;

  /// Whether the memory is neither shared with another tensor nor borrowed, so may be overwritten.
  bool unique() const { return storage_.use_count() == 1 && !storage_->borrowed(); }
  bool shares_memory_with(const Tensor& other) const { return storage_ == other.storage_; }

  /// A pointer to the first element. Throws if T does not match the dtype.
  template <class T>
  T* data() {
    return const_cast<T*>(static_cast<const Tensor*>(this)->data<T>());
  }
  template <class T>
  const T* data() const;
  /// The same, whatever the dtype.
  const void* address() const;

  /// The only element. Throws if there is not exactly one.
  double item() const;
  /// The element at an index; for tests and messages, not for loops.
  double at(std::initializer_list<int64_t> index) const;
  /// All elements in row-major order.
  template <class T>
  std::vector<T> to_vector() const;

  /// Sets every element.
  void fill(double value);

 private:
  Tensor view(const Shape& shape, const Strides& strides, int64_t offset) const;

  std::shared_ptr<Storage> storage_;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;  // elements
  DType dtype_ = DType::f32;
};

/// Returns the strides of Tensor::empty_ordered: dense, with the axes in the order of `like`.
Strides dense_strides(const Shape& shape, const Strides& like);

/// out = in, element by element, converting the dtype. Shapes must be equal.
void copy_into(Tensor& out, const Tensor& in);
inline void copy_into(Tensor&& out, const Tensor& in) { copy_into(out, in); }

/// out = beta out + in, element by element, of one shape and float dtype; beta = 0 never reads out.
void accumulate_into(Tensor& out, double beta, const Tensor& in);

/// Whether dtypes, shapes and elements are bitwise identical; NaNs with the same bits are equal.
bool identical(const Tensor& a, const Tensor& b);

template <class T>
Tensor Tensor::from(std::span<const T> values, const Shape& shape) {
  check<ShapeError>(static_cast<int64_t>(values.size()) == shape.numel(), "tensor: expected ",
                    shape.numel(), " values for shape ", shape, ", got ", values.size());
  Tensor out = empty(shape, dtype_of<T>);
  std::copy(values.begin(), values.end(), out.data<T>());
  return out;
}

template <class T>
const T* Tensor::data() const {
  check<ShapeError>(defined(), "tensor: an undefined tensor has no data");
  check<ShapeError>(dtype_of<T> == dtype_, "tensor: cannot read ", dtype_, " as ", dtype_of<T>);
  return reinterpret_cast<const T*>(storage_->data()) + offset_;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense = to(dtype_of<T>).contiguous();
  const T* p = dense.data<T>();
  return std::vector<T>(p, p + dense.numel());
}

}  // namespace longhand

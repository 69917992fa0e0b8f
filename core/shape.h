// Shape: the sizes, or strides, of a tensor's axes, stored inline.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>

namespace longhand {

/// Up to max_rank sizes, outermost axis first. A scalar has rank 0 and one element.
class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  /// Throws ShapeError for more than max_rank sizes.
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  /// Size of an axis; negative axes count from the end. Throws ShapeError if axis is out of range.
  int64_t operator[](int axis) const { return sizes_[index(axis)]; }
  int64_t& operator[](int axis) { return sizes_[index(axis)]; }
  /// Product of the sizes.
  int64_t numel() const;

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }

  void push_back(int64_t size);
  /// Returns a copy with a new axis of the given size inserted before `axis`, or without `axis`.
  Shape with_axis(int axis, int64_t size) const;
  Shape without_axis(int axis) const;

  /// Returns the axis as 0 … rank-1. Throws ShapeError if it is out of range.
  int index(int axis) const {
    const int i = axis < 0 ? axis + rank_ : axis;
    if (i < 0 || i >= rank_) [[unlikely]]
      bad_axis(axis);
    return i;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.sizes_[i] != b.sizes_[i]) return false;
    return true;
  }

 private:
  [[noreturn]] void bad_axis(int axis) const;

  std::array<int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

using Strides = Shape;

/// Returns the strides, in elements, of a row-major dense tensor of this shape.
Strides contiguous_strides(const Shape& shape);

/// Returns the shape that both broadcast to: axes are aligned at the end, sizes of 1 are repeated.
/// Throws ShapeError naming `what` and both shapes if there is none.
Shape broadcast_shape(const Shape& a, const Shape& b, const char* what = "broadcast");

/// "[2, 3]"
std::ostream& operator<<(std::ostream& out, const Shape& shape);

}  // namespace longhand

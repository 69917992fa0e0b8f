#include "longhand/core/shape.h"

#include <ostream>

#include "longhand/core/error.h"

namespace longhand {

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span<const int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) push_back(size);
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t size : *this) n *= size;
  return n;
}

void Shape::push_back(int64_t size) {
  check<ShapeError>(rank_ < max_rank, "shape: expected at most ", max_rank, " axes, got more");
  sizes_[rank_++] = size;
}

Shape Shape::with_axis(int axis, int64_t size) const {
  const int at = axis < 0 ? axis + rank_ + 1 : axis;
  check<ShapeError>(at >= 0 && at <= rank_, "shape: expected a position from ", -rank_ - 1, " to ",
                    rank_, " for a new axis of ", *this, ", got ", axis);
  Shape out;
  for (int i = 0; i < at; ++i) out.push_back(sizes_[i]);
  out.push_back(size);
  for (int i = at; i < rank_; ++i) out.push_back(sizes_[i]);
  return out;
}

Shape Shape::without_axis(int axis) const {
  const int at = index(axis);
  Shape out;
  for (int i = 0; i < rank_; ++i)
    if (i != at) out.push_back(sizes_[i]);
  return out;
}

void Shape::bad_axis(int axis) const {
  throw ShapeError(concat_message("axis ", axis, " is out of range for shape ", *this));
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

Shape broadcast_shape(const Shape& a, const Shape& b, const char* what) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  for (int i = 1; i <= shorter.rank(); ++i) {
    const int64_t x = longer[-i], y = shorter[-i];
    check<ShapeError>(x == y || x == 1 || y == 1, what, ": shapes ", a, " and ", b,
                      " cannot be broadcast together");
    out[-i] = x == 1 ? y : x;
  }
  return out;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.rank(); ++i) out << (i ? ", " : "") << shape[i];
  return out << ']';
}

}  // namespace longhand

#include "longhand/core/layouts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <vector>

namespace longhand {
namespace {

constexpr std::array layouts = {
    Layout::row_major,    Layout::reversed,       Layout::stride_2,       Layout::stride_3,
    Layout::holes,        Layout::holes_stride_2, Layout::channels_first, Layout::heads_first,
    Layout::expand_first, Layout::expand_last,    Layout::expand_middle,  Layout::expand_all};

Tensor row_major_copy(const Tensor& values) {
  Tensor copy = Tensor::empty(values.shape(), values.dtype());
  copy_into(copy, values);
  return copy;
}

// Memory filled with values that reveal an incorrect read.
Tensor poisoned(const Shape& shape, DType dtype) {
  Tensor t = Tensor::empty(shape, dtype);
  dispatch_any(dtype, [&]<class T>() {
    std::fill_n(
        t.data<T>(), t.numel(),
        is_float(dtype) ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::max());
  });
  return t;
}

// In memory, axis i is axis order[i] of the values.
Tensor in_order(const Tensor& values, const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int>(i);
  return row_major_copy(values.permute(order)).permute(back);
}

Tensor interleaved(const Tensor& values, int64_t step) {
  Shape shape = values.shape();
  shape.push_back(step);
  Tensor t = poisoned(shape, values.dtype()).select(-1, step - 1);
  copy_into(t, values);
  return t;
}

Tensor with_margins(const Tensor& values, bool last_too) {
  const int rank = values.rank();
  Shape wide = values.shape();
  for (int i = 0; i < rank; ++i)
    if (i < rank - 1 || last_too) wide[i] = 2 * wide[i] + 3;
  Tensor t = poisoned(wide, values.dtype());
  for (int i = 0; i < rank; ++i) {
    const int64_t n = values.size(i);
    if (i < rank - 1)
      t = t.slice(i, 1, 1 + n);
    else if (last_too)
      t = t.slice(i, 2, 2 + 2 * n, 2);
  }
  copy_into(t, values);
  return t;
}

Tensor expanded(const Tensor& values, int axis) {
  if (values.size(axis) < 2) return row_major_copy(values);
  return row_major_copy(values.slice(axis, 0, 1)).expand(values.shape());
}

}  // namespace

std::span<const Layout> all_layouts() { return layouts; }

std::string to_string(Layout layout) {
  static const char* const names[] = {"row_major",      "reversed",      "stride_2",
                                      "stride_3",       "holes",         "holes_stride_2",
                                      "channels_first", "heads_first",   "expand_first",
                                      "expand_last",    "expand_middle", "expand_all"};
  return names[static_cast<int>(layout)];
}

Tensor with_layout(const Tensor& values, Layout layout) {
  const int rank = values.rank();
  std::vector<int> order(rank);
  std::iota(order.begin(), order.end(), 0);
  switch (layout) {
    case Layout::row_major:
      return row_major_copy(values);
    case Layout::reversed:
      std::ranges::reverse(order);
      return in_order(values, order);
    case Layout::stride_2:
      return interleaved(values, 2);
    case Layout::stride_3:
      return interleaved(values, 3);
    case Layout::holes:
      return with_margins(values, false);
    case Layout::holes_stride_2:
      return with_margins(values, true);
    case Layout::channels_first:
      if (rank > 1) std::rotate(order.begin() + (rank > 2), order.end() - 1, order.end());
      return in_order(values, order);
    case Layout::heads_first:
      if (rank > 2)
        std::swap(order[1], order[2]);
      else
        std::ranges::reverse(order);
      return in_order(values, order);
    case Layout::expand_first: {
      int axis = 0;
      while (axis < rank - 1 && values.size(axis) < 2) ++axis;
      return rank ? expanded(values, axis) : row_major_copy(values);
    }
    case Layout::expand_last:
      return rank ? expanded(values, rank - 1) : row_major_copy(values);
    case Layout::expand_middle:
      return rank ? expanded(values, std::max(0, rank - 2)) : row_major_copy(values);
    case Layout::expand_all: {
      Tensor one = row_major_copy(values);
      for (int i = 0; i < rank && values.numel(); ++i) one = one.slice(i, 0, 1);
      return row_major_copy(one).expand(values.shape());
    }
  }
  return values;
}

}  // namespace longhand

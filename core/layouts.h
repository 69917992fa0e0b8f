// Copies of a tensor in other memory layouts: for tests of code that must work for any strides.
#pragma once

#include <span>
#include <string>

#include "longhand/core/tensor.h"

namespace longhand {

/// How the elements of a tensor lie in memory. Strides are never negative.
enum class Layout {
  row_major,
  reversed,        // the first axis innermost
  stride_2,        // row-major with 2 elements from one to the next: all axes still merge into one
  stride_3,        // likewise with 3, the last of three interleaved tensors
  holes,           // rows of the last axis contiguous, with a margin around every other axis
  holes_stride_2,  // a margin around every axis, every second element of the last one
  channels_first,  // (a, …, d) in memory as (a, d, …)
  heads_first,     // (a, b, c, …) in memory as (a, c, b, …)
  // Broadcast views. These repeat elements, so their values are not those given.
  expand_first,   // stride 0 along the first axis longer than 1
  expand_last,    // stride 0 along the last axis
  expand_middle,  // stride 0 along the last axis but one
  expand_all      // one element
};

/// Every layout, in the order above.
std::span<const Layout> all_layouts();
std::string to_string(Layout layout);
/// Whether the layout repeats elements.
inline bool repeats_elements(Layout layout) { return layout >= Layout::expand_first; }

/// The values in memory of their own, laid out that way; what lies between them is NaN (the largest
/// number for integers). Where the rank is too low for a layout, the nearest one that exists.
Tensor with_layout(const Tensor& values, Layout layout);

}  // namespace longhand

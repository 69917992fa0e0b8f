// Copies of a tensor in other memory layouts, for tests of code that must work for any strides.
#pragma once

#include <span>
#include <string>

#include "longhand/core/tensor.h"

namespace longhand {

/// The memory layout of a tensor. Strides are never negative.
enum class Layout {
  row_major,
  reversed,        // the first axis is innermost
  stride_2,        // row-major with stride 2: all axes still merge into one
  stride_3,        // likewise with stride 3, as the last of three interleaved tensors
  holes,           // rows of the last axis contiguous, with a margin around every other axis
  holes_stride_2,  // a margin around every axis, every second element of the last one
  channels_first,  // (a, …, d) in memory as (a, d, …)
  heads_first,     // (a, b, c, …) in memory as (a, c, b, …)
  // Broadcast views. These repeat elements, so their values are not those given.
  expand_first,   // stride 0 along the first axis longer than 1
  expand_last,    // stride 0 along the last axis
  expand_middle,  // stride 0 along the second-to-last axis
  expand_all      // one element
};

/// Every layout, in the order above.
std::span<const Layout> all_layouts();
std::string to_string(Layout layout);
/// Whether the layout repeats elements.
inline bool repeats_elements(Layout layout) { return layout >= Layout::expand_first; }

/// Copies the values into new memory with this layout; gaps are filled with NaN (the largest value
/// for integers). If the rank is too low for a layout, the nearest possible one is used.
Tensor with_layout(const Tensor& values, Layout layout);

}  // namespace longhand

// Join: what an operation over all tokens needs if other processes have some of them.
#pragma once

#include <functional>

#include "longhand/autograd/variable.h"

namespace longhand {

/// A section of an axis: its first index, and the size of the whole axis; 0: the axis is whole.
struct Section {
  int64_t first = 0, of = 0;
};

/// The parts of the same sequences, in order, of which this process has one. An operation over tokens
/// joins what the parts give: their sums, or the states after them. Each part takes part in every call,
/// in the same order. Functions of a Variable are differentiable: each part has a loss, and gradients
/// are those of the sum of all losses.
class Join {
 public:
  virtual ~Join() = default;

  virtual int64_t part() const = 0;   // the index of this part
  virtual int64_t parts() const = 0;  // P
  /// Tokens of each part.
  virtual int64_t tokens() const = 0;

  /// The sum of the x of all parts.
  virtual Tensor sum(const Tensor& x) const = 0;
  virtual Variable sum(const Variable& x) const = 0;
  /// The x of all parts, (P, …).
  virtual Tensor all(const Tensor& x) const = 0;
  virtual Variable all(const Variable& x) const = 0;
  /// x (B, n, …) between the `before` tokens in front of it and the `after` tokens behind it, which other
  /// parts have: (B, before + n + after, …). Where there are none, zeros.
  virtual Variable with_neighbours(const Variable& x, int64_t before, int64_t after) const = 0;

  struct Arrival {
    Tensor x;
    std::function<void()> wait;  // returns once x has arrived and what was sent may change
  };
  /// Starts to pass x on to the next part, the last one to the first, and to receive that of the part
  /// before.
  virtual Arrival pass_on(const Tensor& x) const = 0;
};

}  // namespace longhand

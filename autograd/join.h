// Join: combines operations over tokens that are distributed over several processes.
#pragma once

#include <functional>

#include "longhand/autograd/variable.h"

namespace longhand {

/// A section of an axis: its first index, and the size of the whole axis (0: the axis is whole).
struct Section {
  int64_t first = 0, of = 0;
};

/// The parts of the same sequences, in order, one of which this process holds. An operation over
/// tokens combines the parts' contributions: their sums, or their final states. Each part takes
/// part in every call, in the same order. Functions of a Variable are differentiable: each part has
/// its own loss, and gradients are those of the sum of all losses.
class Join {
 public:
  virtual ~Join() = default;

  virtual int64_t part() const = 0;   // the index of this part
  virtual int64_t parts() const = 0;  // P
  /// The number of tokens in each part.
  virtual int64_t tokens() const = 0;

  /// Returns the sum of x over all parts.
  virtual Tensor sum(const Tensor& x) const = 0;
  virtual Variable sum(const Variable& x) const = 0;
  /// Returns x of all parts, (P, …).
  virtual Tensor all(const Tensor& x) const = 0;
  virtual Variable all(const Variable& x) const = 0;
  /// Returns x (B, n, …) with the `before` tokens before it and the `after` tokens after it, from
  /// other parts: (B, before + n + after, …). Beyond the ends of the sequence, they are zeros.
  virtual Variable with_neighbours(const Variable& x, int64_t before, int64_t after) const = 0;

  struct Arrival {
    Tensor x;
    std::function<void()> wait;  // returns once x has arrived and the sent tensor may change
  };
  /// Starts to send x to the next part (from the last one to the first), and to receive x of the
  /// previous part.
  virtual Arrival pass_on(const Tensor& x) const = 0;
};

}  // namespace longhand

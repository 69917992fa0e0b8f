// How two states, such as those of two checkpoints, differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhand/nn/module.h"

namespace longhand::train {

/// How a tensor differs between two states. It is undefined where a state does not have it.
struct TensorDifference {
  std::string name;
  Tensor first, second;
  // For tensors of the same shape:
  int64_t differing = 0;  // elements whose values differ; two NaN are equal
  double largest = 0;     // |a - b|; NaN if one of them is NaN, or if they are infinite
  double relative = 0;    // |a - b| / |a| in the Euclidean norm; infinite for a = 0

  bool same_shape() const {
    return first.defined() && second.defined() && first.shape() == second.shape();
  }
  bool same_dtype() const {
    return first.defined() && second.defined() && first.dtype() == second.dtype();
  }
  /// Whether no two values differ by more than that.
  bool is_within(double tolerance) const {
    return same_shape() && same_dtype() && (differing == 0 || largest <= tolerance);
  }
  bool equal() const { return same_shape() && same_dtype() && differing == 0; }
};

/// The differences of all tensors of either state, in alphabetical order of their names. Numbers are
/// compared as f64 (integers beyond 2^53 exactly).
std::vector<TensorDifference> differences(const nn::StateDict& first, const nn::StateDict& second);

}  // namespace longhand::train

// Differences between two checkpoints, or between a checkpoint and a tensor file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/nn/module.h"

namespace longhand::train {

/// How a tensor differs between two states. A tensor that a state lacks is undefined.
struct TensorDifference {
  std::string name;
  Tensor first, second;
  // For tensors of the same shape:
  int64_t differing = 0;  // elements that differ; NaNs are equal
  double largest = 0;     // |a - b|; NaN if one of them is NaN, or if they are infinite
  double relative = 0;    // |a - b| / |a| in the Euclidean norm; infinite for a = 0

  bool same_shape() const {
    return first.defined() && second.defined() && first.shape() == second.shape();
  }
  bool same_dtype() const {
    return first.defined() && second.defined() && first.dtype() == second.dtype();
  }
  /// Returns whether all values differ by at most `tolerance`.
  bool is_within(double tolerance) const {
    return same_shape() && same_dtype() && (differing == 0 || largest <= tolerance);
  }
};

/// Returns the differences of all tensors in either state, in alphabetical order of names. Values
/// are compared as f64 (integers beyond 2^53 exactly).
std::vector<TensorDifference> differences(const nn::StateDict& first, const nn::StateDict& second);

/// A state in both: "model", "optimizer", "averaged weights", or "weights", as used in evaluation.
struct ComparedState {
  std::string name;
  size_t in_first = 0, in_second = 0;  // tensors
  std::vector<TensorDifference> tensors{};
};

struct Comparison {
  std::string first{}, second{};  // files
  bool equal = true;              // all tensors, within the tolerance
  std::vector<ComparedState> states{};
  /// Options and counters that differ, with both values; nothing where a side lacks it.
  std::map<std::string, std::pair<std::optional<OptionValue>, std::optional<OptionValue>>> other{};
};

struct CompareOptions {
  std::string checkpoint = "best";  // of run directories
  double tolerance = 0;
  bool weights = false;  // compare only weights, as with a tensor file
};

/// Compares `first` and `second`: checkpoints, run directories or tensor files.
Comparison compare(const std::string& first, const std::string& second,
                   const CompareOptions& options);

}  // namespace longhand::train

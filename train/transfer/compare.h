// What differs between two checkpoints, or a checkpoint and a file of tensors.
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
};

/// The differences of all tensors of either state, in alphabetical order of their names. Numbers are
/// compared as f64 (integers beyond 2^53 exactly).
std::vector<TensorDifference> differences(const nn::StateDict& first, const nn::StateDict& second);

/// A state of both: "model", "optimizer", "averaged weights", or "weights", those used in evaluation.
struct ComparedState {
  std::string name;
  size_t in_first = 0, in_second = 0;  // tensors
  std::vector<TensorDifference> tensors{};
};

struct Comparison {
  std::string first{}, second{};  // files
  bool equal = true;              // all tensors, within the tolerance
  std::vector<ComparedState> states{};
  /// The options and counters that differ, with both values; nothing where a side does not have it.
  std::map<std::string, std::pair<std::optional<OptionValue>, std::optional<OptionValue>>> other{};
};

struct CompareOptions {
  std::string checkpoint = "best";  // of run directories
  double tolerance = 0;
  bool weights = false;  // only these, as if one side is a file of tensors
};

/// `first` and `second`: checkpoints, run directories or files of tensors.
Comparison compare(const std::string& first, const std::string& second,
                   const CompareOptions& options);

}  // namespace longhand::train

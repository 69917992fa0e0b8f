// What differs between two checkpoints, or a checkpoint and a file of tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/train/checkpoint/difference.h"

namespace longhand::train {

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

// Estimate: the cost of a sweep, from a few measured steps of each variant.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"

namespace longhand::train {

/// The cost of a variant's unfinished cells.
struct VariantEstimate {
  std::string label;
  int64_t cells = 0, cells_left = 0;  // including trials of a search
  double step_seconds = 0, evaluation_seconds = 0, start_seconds = 0;
  double seconds_left = 0;  // of all of them, run one after another
  int64_t peak_memory = 0;  // bytes, per cell
  std::string failure{};    // why it was not measured; the numbers are then 0
};

struct EstimateOptions {
  std::filesystem::path program = "/proc/self/exe";
  int64_t threads = 1;
  Shard shard{};  // counts only its cells
  std::function<void(int64_t done, int64_t all)> on_progress = {};
  std::function<bool()> should_stop =
      {};  // true ends it; the variants measured so far are returned
};

/// Trains each variant for a few steps and evaluates it once on the validation split, in a separate
/// process and a temporary directory. Throws DataError if files cannot be written.
std::vector<VariantEstimate> estimate(const Grid& grid, const CellStates& states,
                                      const EstimateOptions& options);

/// The cost of a sweep that runs `jobs` cells concurrently.
struct SweepEstimate {
  int64_t cells = 0, cells_left = 0;
  int64_t failed = 0;  // variants
  int64_t memory = 0;  // bytes, of the largest cells run concurrently
  double seconds = 0;
};
SweepEstimate add_up(const std::vector<VariantEstimate>& estimates, int64_t jobs);

}  // namespace longhand::train

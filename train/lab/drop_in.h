// Drop-in evaluation: a trained model with different attention or data, without retraining.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// Returns whether "section.name" is an option of attention.
inline bool is_attention(const std::string& key) { return key.starts_with("attention."); }

/// Returns the grid for evaluating `run`, whose configuration is the base. `file`, if not empty,
/// has axes, conditions and seeds like a sweep; a baseline is ignored. Each of `over` adds an axis:
/// "attention.features=64,256", with values as Config::assign() reads them; "window+linear" names a
/// variant per layer. Axes multiply, but an option of attention applies only to variants that
/// declare it. Without seeds in the file, the result has none. Throws ConfigError for an invalid
/// file or axis.
Sweep drop_in_grid(const SavedModel& run, const std::string& file,
                   const std::vector<std::string>& over, const std::vector<std::string>& set = {});

struct DropInOptions {
  std::string split = "test";
  int64_t limit = 0;  // examples per segment; 0: all
  /// Called before the first batch and after each one, if not empty: examples done, their total,
  /// and what is being evaluated.
  std::function<void(int64_t done, int64_t all, const std::string& label)> on_progress = {};
};

/// Evaluates a trained model over a grid. Weights that a variant shares with the model are loaded,
/// others are initialised. Without seeds, random features come from the checkpoint where they fit,
/// and are otherwise sampled from train.seed. Each seed gives different random features and initial
/// values; a variant with neither is evaluated once. Every combination is checked, including
/// against the data and the weights, before the first evaluation; each data set is read once.
///
/// The results, of kind "evaluate", have the table "variants" (means over seeds; 95 % intervals
/// over examples and over seeds; differences from the model as trained, on the same data, paired by
/// example), "draws" if there are several seeds, and "segments" if the data is a mixture. They do
/// not depend on the number of threads. Throws ConfigError for a variant that cannot replace the
/// original, with the reason, and DataError for data that cannot be read.
Results evaluate_grid(const SavedModel& run, Sweep grid, const DropInOptions& options = {});

}  // namespace longhand::train

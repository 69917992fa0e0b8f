// Drop-in evaluation: a trained model with other attention, or on other data, without retraining.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

struct DropInOptions {
  std::string split = "test";
  int64_t limit = 0;  // examples of each segment; 0: all
  /// Called before the first batch and after each one, if not empty: examples done and in all, and
  /// what is being evaluated.
  std::function<void(int64_t done, int64_t all, const std::string& label)> on_progress = {};
};

/// Evaluates a trained model over a grid. Weights that a variant shares with it are loaded, others
/// initialised. Without seeds, random features are those of the checkpoint where they fit, and
/// otherwise drawn from train.seed. Each seed makes other draws of random features and other
/// initialisations; a variant with neither is evaluated once. Every combination is checked, also
/// against the data and the weights, before the first one is evaluated; each data set is read once.
///
/// The results, of kind "evaluate", have the table "variants" (means over seeds; 95 % intervals over
/// examples and over seeds; differences to the model as trained on the same data, paired by example),
/// "draws" if there are several seeds, and "segments" if the data are a mixture. They do not depend on
/// the number of threads. Throws ConfigError for a variant that cannot stand in, with the reason, and
/// DataError for data that cannot be read.
Results evaluate_grid(const SavedModel& run, Sweep grid, const DropInOptions& options = {});

}  // namespace longhand::train

// Drop-in evaluation: a trained model with other attention, or on other data, without retraining.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// Whether "section.name" is an option of attention.
inline bool is_attention(const std::string& key) { return key.starts_with("attention."); }

/// The grid of an evaluation of `run`, whose configuration is the base. `file`, unless empty, has axes,
/// conditions and seeds as a sweep has them; a baseline is ignored. Each of `over` adds an axis:
/// "attention.features=64,256", with values as Config::assign() reads them; "window+linear" names a
/// variant for each layer. Axes multiply, but an option of attention applies only to the variants that
/// declare it. Without seeds in the file, those of the result are empty. Throws ConfigError for an
/// invalid file or axis.
Sweep drop_in_grid(const SavedModel& run, const std::string& file,
                   const std::vector<std::string>& over, const std::vector<std::string>& set = {});

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

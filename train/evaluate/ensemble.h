// Ensembles: several runs, or several samples of random features, averaging their probabilities.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/nn/module.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// Returns a model's scope for sample `seed` of its random numbers, which differ from those of a
/// run trained with the same seed.
nn::Scope scope_of_draw(int64_t seed);

struct EnsembleOptions {
  std::string split = "test";
  int64_t limit = 0;               // examples of each segment; 0: all
  std::vector<int64_t> seeds{};    // of samples: each run is a member once per seed
  std::vector<std::string> set{};  // assignments to the configuration of every run
  /// Called before the first batch and after each one, if not empty: examples done, and in total.
  std::function<void(int64_t done, int64_t all)> on_progress = {};
};

/// Evaluates the ensemble of all runs, each with the random features of its checkpoint or, with
/// seeds, once per sample. All members see the data of the first run, once. The results, of kind
/// "evaluate", have the table "ensemble" (members, their mean with its 95 % interval over members,
/// the ensemble, and its gain, paired by example), and "segments" if the data is a mixture. They do
/// not depend on the number of threads. Throws ConfigError if the runs differ in task, classes or
/// data options (except for the seed of generated data), and for seeds without effect.
Results evaluate_ensemble(std::vector<SavedModel> runs, const EnsembleOptions& options = {});

}  // namespace longhand::train

// Ensembles: several runs, or several draws of random features, with the mean of their probabilities.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/nn/module.h"
#include "longhand/train/results/table.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// The scope of a model whose random numbers are draw `seed`: others than those of a run that was
/// trained from the same seed.
nn::Scope scope_of_draw(int64_t seed);

struct EnsembleOptions {
  std::string split = "test";
  int64_t limit = 0;               // examples of each segment; 0: all
  std::vector<int64_t> seeds{};    // of draws: each run is a member with each of them
  std::vector<std::string> set{};  // assignments to the configuration of every run
  /// Called before the first batch and after each one, if not empty: examples done and in all.
  std::function<void(int64_t done, int64_t all)> on_progress = {};
};

/// Evaluates the ensemble of all runs, each with the random features of its checkpoint or, with seeds,
/// once with each draw. All members see the data of the first run, once. The results, of kind
/// "evaluate", have the table "ensemble" (the members, their mean with its 95 % interval over members,
/// the ensemble, and its gain, paired by example), and "segments" if the data are a mixture. They do
/// not depend on the number of threads. Throws ConfigError if the runs differ in task, classes or
/// options of the data (except for the seed of generated data), and for seeds without an effect.
Results evaluate_ensemble(std::vector<SavedModel> runs, const EnsembleOptions& options = {});

}  // namespace longhand::train

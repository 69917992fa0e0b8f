// LoadedRun: a trained model with the data to run it on.
#pragma once

#include <memory>
#include <string>

#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// Returns the model of a checkpoint, which its configuration describes completely; reads no data.
std::unique_ptr<attention::Transformer> model_of(const SavedModel& saved);

/// A trained model with a split of its data.
struct LoadedRun {
  Source source;
  std::unique_ptr<Experiment> experiment;
  const data::Dataset* dataset = nullptr;  // the split
  Fresh fresh{};                           // what was loaded

  attention::Transformer& model() const { return experiment->model; }
};

/// Options for loading a run.
struct RunOptions {
  std::string split = "test";
  bool with_training = false;  // also makes the training split
  bool undivided = false;      // files are not split: see data::Splits
  LoadOptions weights{};
};

/// Makes the data and the model described by saved.config, which may have been changed since
/// loading, and loads the weights. Throws what Experiment, load_weights() and
/// SavedModel::check_data() throw.
LoadedRun open_run(const SavedModel& saved, const RunOptions& options);

}  // namespace longhand::train

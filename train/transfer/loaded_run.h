// LoadedRun: a trained model with the data to run it on.
#pragma once

#include <memory>
#include <string>

#include "longhand/train/config/experiment.h"
#include "longhand/train/transfer/load_weights.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// The model of a checkpoint alone: its configuration describes it completely, no data is read.
std::unique_ptr<attention::Transformer> model_of(const SavedModel& saved);

/// A trained model with a split of its data.
struct LoadedRun {
  Source source;
  std::unique_ptr<Experiment> experiment;
  const data::Dataset* dataset = nullptr;  // the split
  Fresh fresh{};                           // what was loaded

  attention::Transformer& model() const { return experiment->model; }
};

/// How a run is loaded.
struct RunOptions {
  std::string split = "test";
  bool with_training = false;  // makes the training split, too
  bool undivided = false;      // a file is read whole: see data::Splits
  LoadOptions weights{};
};

/// Makes the data and the model that saved.config describes, which may have been changed since it was
/// loaded, and loads the weights. Throws what Experiment, load_weights() and SavedModel::check_data()
/// throw.
LoadedRun open_run(const SavedModel& saved, const RunOptions& options);

}  // namespace longhand::train

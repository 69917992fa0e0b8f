#include "longhand/train/transfer/loaded_run.h"

namespace longhand::train {

std::unique_ptr<attention::Transformer> model_of(const SavedModel& saved) {
  auto model =
      std::make_unique<attention::Transformer>(nn::root(), read_model(saved.config, nullptr));
  load_weights(*model, saved);
  return model;
}

LoadedRun open_run(const SavedModel& saved, const RunOptions& options) {
  data::Splits splits = data::Splits::only(options.split);
  splits.train = splits.train || options.with_training;
  splits.undivided = options.undivided;
  LoadedRun out{.source = saved.source(),
                .experiment = std::make_unique<Experiment>(saved.config, splits)};
  out.dataset = &out.experiment->task.split(options.split);
  out.fresh = load_weights(out.model(), saved, options.weights);
  saved.check_data(out.experiment->task, saved.config);
  return out;
}

}  // namespace longhand::train

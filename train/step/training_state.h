// TrainingState: counters of a run.
#pragma once

#include <cstdint>
#include <optional>

#include "longhand/data/loader.h"
#include "longhand/train/step/gradients.h"
#include "longhand/train/step/guard.h"

namespace longhand::train {

/// Progress of a training run. Together with the configuration and the tensors of a Checkpoint,
/// this is the complete state: all random numbers of a step derive from the seed and the step.
struct TrainingState {
  int64_t step = 0;  // optimizer steps done
  uint64_t seed = 0;
  data::Loader::Cursor cursor;  // the next batch

  // Sums over the steps since the last training record.
  struct Interval : LossSums {
    int64_t steps = 0, targets = 0;
    friend bool operator==(const Interval&, const Interval&) = default;
  } interval;

  int64_t evaluated_step = 0;  // steps done at the last evaluation
  std::optional<double> best;  // best value of best_metric
  int64_t best_step = 0;
  int64_t evaluations_since_best = 0;
  double last_accuracy = 0;  // validation accuracy of the last evaluation
  GuardState guard{};

  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

}  // namespace longhand::train

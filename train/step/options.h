// The options of the trainer.
#pragma once

#include <cstdint>
#include <string>

#include "longhand/core/schema.h"
#include "longhand/train/step/step.h"

namespace longhand::train {

struct TrainerOptions {
  StepOptions step{};
  int64_t steps = 1000;          // total optimizer steps
  int64_t sequence_ranks = 1;    // ranks that share each sequence (sequence parallelism)
  bool shard_optimizer = false;  // Optimizer::divide()
  int64_t compare_every = 100;   // steps between comparisons of the ranks' parameters; 0: never
  double label_smoothing = 0;    // in training only
  double ema_decay = 0;          // 0: no average; otherwise evaluation uses the averaged weights
  int64_t log_every = 10;        // steps between training records
  int64_t eval_every = 100;      // steps between evaluations; the last step is always evaluated
  int64_t eval_batch_size = 32;
  int64_t eval_batches = 0;          // batches of the validation split per evaluation; 0: all
  std::string best_metric = "loss";  // selects the best checkpoint: "loss" or "accuracy"
  int64_t patience = 0;  // stop after this number of evaluations without improvement; 0: never
  /// Stop once the validation accuracy reaches this value; 0: never.
  double target_accuracy = 0;
  int64_t checkpoint_every =
      0;                   // steps between saving last.h5; 0: only at the end and when stopped
  int64_t keep_every = 0;  // steps between permanent checkpoints, step-00001000.h5; 0: none
  int64_t hash_every = 0;  // steps between hashes of the parameters; 0: none
  /// Whether to "warn" or "stop" if metrics or a checkpoint cannot be written.
  std::string on_io_error = "warn";

  /// Declares every field except the seed. `batch_size`: the training batch size, already read.
  void describe(OptionVisitor& v, int64_t batch_size);
};

}  // namespace longhand::train

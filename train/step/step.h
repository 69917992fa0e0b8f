// Step: one step of training.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhand/data/loader.h"
#include "longhand/nn/module.h"
#include "longhand/train/step/loss.h"
#include "longhand/train/step/optimizer.h"
#include "longhand/train/step/reducer.h"
#include "longhand/train/step/schedule.h"
#include "longhand/train/step/training_state.h"

namespace longhand::train {

/// How a batch becomes an update: options of [train].
struct StepOptions {
  int64_t shards = 1;         // parts of a batch that are distributed over ranks, a power of two
  int64_t micro_batches = 1;  // parts in which a shard is processed, to save memory
  bool recompute = false;     // nn::Pass::recompute: less memory, more time, the same bits
  double clip_norm = 0;       // 0: no clipping
  GuardOptions guard{};
  uint64_t seed = 0;
};

/// What a step works with, and for. References must outlive the step.
struct StepContext {
  nn::Module& model;
  LossFn loss;
  Optimizer& optimizer;
  Schedule schedule;
  data::Loader& loader;
  const StepOptions& options;
  /// Called when a phase begins: see Observer::on_phase. May be empty.
  std::function<void(const char*)> on_phase = {};
  /// Called at the end of each update, with the number of steps done. May be empty.
  std::function<void(int64_t step)> after_update = {};
  /// Called instead of the update if the step is bad, with the reason; may throw.
  std::function<void(const std::string&)> on_defect = {};
};

/// A step: batch, forward, loss, backward, clip, update. The bits do not depend on the number of threads,
/// nor on that of processes.
class Step {
 public:
  explicit Step(StepContext context);

  /// Trains together with other processes. `reducer` must outlive this object.
  void join(const Reducer& reducer) { reducer_ = &reducer; }
  const Reducer& reducer() const { return *reducer_; }

  /// What a step computes before it changes anything.
  struct Computed {
    Contribution total;
    BatchSize size;
  };
  /// Computes the loss and the gradients of the step after `step` steps. Only the loader advances.
  Computed compute(int64_t step);

  struct Result {
    double loss = 0, learning_rate = 0;
    double gradient_norm = 0;  // before clipping
    double seconds = 0;
    int64_t tokens = 0;  // without padding
  };
  /// Does the next step and counts it in `state`.
  Result take(TrainingState& state);

  /// Changes the parameters or the state of the optimizer. If that throws, they are neither the old nor
  /// the new ones, and check_complete() throws from then on.
  void change(const std::function<void()>& f);
  void check_complete() const;

  const Parameters& parameters() const { return parameters_; }

 private:
  struct Piece;
  std::vector<Piece> pieces(int64_t rows) const;
  Loss loss_of(const data::Batch& batch, const BatchSize& size, const Piece& piece,
               int64_t step) const;
  void phase(const char* name) const {
    if (context_.on_phase) context_.on_phase(name);
  }

  StepContext context_;
  const Parameters& parameters_;
  std::vector<Tensor> counters_;  // integer buffers of the model, whose memory they share
  const Reducer* reducer_ = &one_process();
  bool incomplete_ = false;  // a change has begun and not ended
};

}  // namespace longhand::train

// Step: a single training step.
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

/// Options of [train] that control how a batch becomes an update.
struct StepOptions {
  int64_t shards = 1;         // parts of a batch that are distributed over ranks, a power of two
  int64_t micro_batches = 1;  // parts in which a shard is processed, to save memory
  bool recompute = false;     // nn::Pass::recompute: less memory, more time, bitwise identical
  double clip_norm = 0;       // 0: no clipping
  GuardOptions guard{};
  uint64_t seed = 0;
};

/// The objects that a step uses. References must outlive the step.
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
  /// Called with the reason instead of the update if the step is bad; may throw.
  std::function<void(const std::string&)> on_defect = {};
};

/// One step: batch, forward, loss, backward, clip, update. Results are bitwise identical for any
/// number of threads and processes.
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
  /// Performs the next step and counts it in `state`.
  Result take(TrainingState& state);

  /// Changes the parameters or the optimizer's state. If `f` throws, they may be partly changed,
  /// and check_complete() throws from then on.
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
  std::vector<Tensor> counters_;  // the model's integer buffers, sharing their memory
  const Reducer* reducer_ = &one_process();
  bool incomplete_ = false;  // a change was interrupted
};

}  // namespace longhand::train

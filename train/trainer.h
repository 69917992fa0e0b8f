// Trainer: the training loop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "longhand/data/dataset.h"
#include "longhand/data/loader.h"
#include "longhand/nn/module.h"
#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/step/ema.h"
#include "longhand/train/step/evaluation.h"
#include "longhand/train/step/options.h"
#include "longhand/train/step/step.h"

namespace longhand::train {

/// Returns the XXH3-128 digest of all parameters' names and values, as 32 hexadecimal digits.
std::string hash_of(const Parameters& parameters);

/// One line of a metrics file.
struct Record {
  int64_t step = 0;     // optimizer steps done
  std::string split;    // "train": mean over the steps since the previous record; or "validation"
  double loss = 0;      // nats per target; train: the minimised loss, without label smoothing
  double accuracy = 0;  // NaN for numbers
  std::map<std::string, double> terms{};  // train: Loss::terms
  std::optional<double> bits_per_byte{};  // for tasks on bytes
  std::optional<double> learning_rate{};  // train: of the last step
  std::optional<double> gradient_norm{};  // train: of the last step, before clipping
  double tokens_per_second = 0;           // of this process, in training or evaluation
  int64_t peak_memory = 0;                // bytes, resident, of this process so far
  std::map<std::string, double> model{};  // train: Module::metrics()
  int64_t skipped = 0;                    // train: skipped steps, not included above
  bool best = false;                      // validation: better than all previous ones
  /// Of all processes of a run, from its start to this record; set by Run.
  std::optional<double> seconds{};

  /// In nats per target: the term with this name, if the loss has several terms.
  double cross_entropy() const {
    const auto found = terms.find("cross_entropy");
    return found == terms.end() ? loss : found->second;
  }
};

/// Reported after each step, for a progress bar.
struct Progress : Step::Result {
  int64_t step = 0, steps = 0;
  double tokens_per_second = 0;  // of this step
};

/// Callbacks into the caller. Empty functions are not called.
struct Observer {
  std::function<void(const Record&)> on_record = {};
  std::function<void(const Progress&)> on_progress = {};
  /// Called before, during and after each evaluation.
  std::function<void(const EvaluationProgress&)> on_evaluation = {};
  /// Called every TrainerOptions::hash_every steps with hash_of() the parameters.
  std::function<void(int64_t step, const std::string& hash)> on_hash = {};
  /// Called before a checkpoint is written: everything it builds on must already be durable.
  std::function<void()> before_save = {};
  /// Called after a step whose update was skipped, with the reason.
  std::function<void(const std::string&)> on_skipped = {};
  /// Called after a checkpoint has been written to disk.
  std::function<void(const std::filesystem::path&)> on_saved = {};
  /// Called after each step and between batches of an evaluation; returning true saves and stops.
  std::function<bool()> should_stop = {};
  /// Save after this step and its evaluation, and end as if stopped; 0: none.
  int64_t until = 0;
  /// Called after each step; returning true saves last.h5 and continues.
  std::function<bool()> should_save = {};
  /// Called when a phase of a step begins: "forward" and "backward" for each micro-batch, "wait"
  /// (for other ranks), "update", and "end".
  std::function<void(const char*)> on_phase = {};
  /// Called with one sentence about a failure that did not end the run.
  std::function<void(const std::string&)> on_warning = {};
};

enum class Stopped {
  finished,  // all steps are done
  early,     // patience is exhausted, or target_accuracy is reached
  signal,    // should_stop returned true; resuming is bitwise identical
};

/// Trains a model. Its only state is counters and tensors: a run that is saved, stopped and resumed
/// is bitwise identical to an uninterrupted one, with any number of threads.
class Trainer {
 public:
  /// `logits` evaluates `model`; `optimizer` has the model's parameters. Checkpoints that contain
  /// `config` (best.h5, last.h5, its predecessor previous.h5, step-N.h5) go to `folder`, which must
  /// exist; empty: none. Minimises `loss`; empty: the cross entropy of `logits`. All references
  /// must outlive the trainer. Throws ConfigError for inconsistent options.
  Trainer(nn::Module& model, LogitsFn logits, Optimizer& optimizer, const Schedule& schedule,
          data::Loader& loader, const data::Task& task, const TrainerOptions& options,
          Observer observer = {}, std::filesystem::path folder = {}, std::string config = {},
          LossFn loss = {});

  /// Replaces the observer. Call before run().
  void observe(Observer observer) { observer_ = std::move(observer); }

  /// Trains until there is a reason to stop, then saves last.h5. Throws DivergedError, naming the
  /// step, if a step's loss or gradient is not finite or is an outlier (see GuardOptions), unless
  /// the step is skipped. Parameters and files are then as before that step, which is saved as
  /// before-step-N.h5 for replay(), like the first skipped step of the run. Throws DataError if the
  /// final state cannot be saved; earlier failures only call on_warning, unless on_io_error is
  /// "stop" or on_warning is empty.
  ///
  /// After another exception, such as std::bad_alloc, run() repeats the failed step. If the update
  /// itself was interrupted, every function except resume() throws Error.
  Stopped run();

  /// Makes this process one of several ranks that train together. Call before run(). Each computes
  /// its share of a batch's shards and of an evaluation's batches. All have the same model, state,
  /// data and options; the state after every step is bitwise that of a single process. Only the
  /// leading rank writes files and reports to its observer; all observers are asked whether to
  /// stop. `ranks` must outlive the trainer. Collective.
  void join(const Reducer& ranks);

  /// Returns why run() would return without a step or an evaluation, other than for a signal;
  /// nothing if there is work left.
  std::optional<Stopped> ended() const;

  /// Computes the loss and the gradients of the next step. Only the loader advances.
  Step::Computed compute_step() { return step_.compute(state_.step); }

  /// Returns everything that resume() needs, without copies: the tensors change in the next step.
  Checkpoint view() const;
  /// Restores the state of the checkpoint. Throws DataError, and changes nothing, if it belongs to
  /// a different model, optimizer or seed, or if its counters are inconsistent. `is_last`: it is
  /// the folder's last.h5, which becomes previous.h5 when the run is saved.
  void resume(const Checkpoint& checkpoint, bool is_last = true);

  const TrainingState& state() const { return state_; }
  /// Returns data::Dataset::fingerprint() by split; stored in checkpoints.
  const std::map<std::string, std::string>& data_hashes() const { return data_hashes_; }

 private:
  void skip_step(const std::string& defect);
  std::string save_snapshot();
  void train_record(const Step::Result& last);
  /// Fills in a record's fields common to all splits and passes it on.
  void report(Record record, const Metrics& metrics, int64_t tokens, double seconds);
  /// Returns false if stopped. `best`: whether the result is better than all previous ones.
  bool evaluate_now(bool& best);
  bool evaluation_due() const;
  bool of_numbers() const;  // whether targets are numbers, which have no accuracy
  /// Writes the state to files with these names, in this order. At the end of the run, failing to
  /// write last.h5 is an error and not only a warning.
  void save(const std::vector<std::string>& names, bool at_end = false);
  bool stop_requested(bool arrived = false) const;

  nn::Module& model_;
  LogitsFn logits_;
  Optimizer& optimizer_;
  data::Loader& loader_;
  const data::Task& task_;
  TrainerOptions options_;
  Observer observer_;
  std::filesystem::path folder_;
  std::string config_;
  std::map<std::string, std::string> data_hashes_;
  std::optional<Ema> ema_;
  TrainingState state_;
  Step step_;
  std::optional<int64_t> saved_;  // the step of last.h5, if it is known to be valid
  // For the rate of the next record; specific to this process, so not part of the state.
  int64_t interval_tokens_ = 0;
  double interval_seconds_ = 0;
};

}  // namespace longhand::train

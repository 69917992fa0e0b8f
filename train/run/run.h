// Run: a training run from its configuration to its summary.
#pragma once

#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/config/experiment.h"
#include "longhand/train/ranks/start.h"
#include "longhand/train/run/durations.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/run/tensorboard.h"
#include "longhand/train/trainer.h"
#include "longhand/train/transfer/distill.h"

namespace longhand::train {

/// The options that a resumed run may change, such as "train.steps": how long it continues, what it
/// reports and where its data is. All others determine its bits.
const std::vector<std::string>& resumable_options();

/// A training run with its directory. `longhand train` is this class with flags and a progress bar:
///
///     auto run = train::Run::create(train::Config::load("mqar.toml"), "runs/mqar");
///     run->train();
///     std::cout << run->summary().best.value_or(NAN) << '\n';
class Run {
 public:
  /// Creates a new run of this configuration; an empty path means runs/NAME-DATE-TIME. Its directory
  /// must not hold a run, unless it is to be overwritten; one that ended before it saved or recorded
  /// anything does not count. Constructs data, model and optimizer first, and reads the checkpoints
  /// that train.init_from and train.distill_from name, so that an error changes nothing: what is
  /// overwritten is removed when train() begins. A run that ends before its first step leaves no
  /// directory. Throws ConfigError and DataError.
  static std::unique_ptr<Run> create(Config config, const std::filesystem::path& directory,
                                     const std::string& name = "run",
                                     Existing existing = Existing::refuse);
  /// Resumes the run in this directory from its last checkpoint, or from the newest valid one if the
  /// last is damaged (from the start, if it ended before anything was saved: it then reads
  /// train.init_from again), with assignments such as "train.steps=2000" to resumable_options().
  /// Nothing is written before train(), and nothing at all if the run is_finished(). Throws ConfigError for any other option and for a directory
  /// that holds no run, DataError if all checkpoints are damaged, for one that is of another run, for a
  /// teacher that has changed, and for data with other hashes than those of the checkpoint, unless
  /// `accept_data`: there is then a warning.
  static std::unique_ptr<Run> resume(const std::filesystem::path& directory,
                                     const std::vector<std::string>& assignments = {},
                                     bool accept_data = false);

  /// Resumes the run in this directory, with the values that this configuration gives to
  /// resumable_options(), or creates it if there is none. So the same call starts, continues and
  /// extends a run. Throws ConfigError if the configuration differs in any other option from that of
  /// the run, and what resume() and create() throw.
  static std::unique_ptr<Run> resume_or_create(Config config,
                                               const std::filesystem::path& directory,
                                               bool accept_data = false);

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Trains until there is a reason to stop, and writes metrics, checkpoints and the summary. The
  /// observer is notified of everything; its on_record is called after the record is written. Throws
  /// DivergedError after writing the summary, and DataError, with train.on_io_error = "stop", after
  /// saving the state when metrics could not be written. Call at most once. With `lead`, trains with
  /// the ranks that follow it, and throws what Lead::start() throws.
  Stopped train(Observer observer = {}, Lead* lead = nullptr);

  /// The contents of summary.json; before the end, those last written.
  const Summary& summary() const { return summary_; }

  const std::filesystem::path& path() const { return record_.path(); }
  Experiment& experiment() { return *experiment_; }
  /// Steps done so far; before train(), those of the checkpoint.
  int64_t step() const { return trainer_.state().step; }
  bool resumed() const { return resumed_; }
  /// Whether a resumed run has nothing left to do: train() returns at once and changes no file.
  bool is_finished() const { return finished_.has_value(); }
  /// What is known before train(): why the checkpoint resumed from is not the last one, why resuming
  /// may not give the bits of an uninterrupted run, and advice() about options. Also in the summary.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// What a run is constructed from, apart from its directory.
  struct Parts {
    std::unique_ptr<Experiment> experiment;
    Sources sources{};
    LossFn loss{};  // empty without a teacher
  };
  /// Reads the teacher; without a checkpoint also the weights to start from.
  static Parts prepare(Config config, const RunRecord* record, const Checkpoint* checkpoint);
  Run(Parts parts, RunRecord record, const ResumePoint* from, bool resumed, bool accept_data);
  void resume_from(const ResumePoint& from, bool accept_data);
  /// Takes over what earlier processes have recorded, and removes the metrics that will be written
  /// again.
  void continue_record();
  /// Adds a warning to the summary, and passes it on.
  void warn(const std::string& warning);
  /// Calls f, which writes metrics; an error is treated as train.on_io_error says.
  template <class F>
  void write_metrics(F&& f);
  /// The observer, after what this class does itself.
  Observer observe();
  /// Writes the metrics of earlier processes to a new event file, for TensorBoard.
  void open_events();
  void summarise(const std::string& status);
  void write_summary_so_far();

  std::unique_ptr<Experiment> experiment_;
  RunRecord record_;
  std::string config_;  // the effective configuration
  bool resumed_;
  std::vector<std::string> warnings_;
  bool metrics_failed_ = false;       // when they were last written
  std::exception_ptr metrics_error_;  // that ends the run
  Observer observer_;
  Summary summary_;
  std::optional<Stopped> finished_;  // why there is nothing left to do
  ProcessSummary process_;           // this one
  double earlier_seconds_ = 0;       // of earlier processes
  int64_t earlier_memory_ = 0;
  double begin_ = 0;
  double next_summary_ = 0;  // the time from which on last.h5 is followed by a summary
  Durations step_times_;
  std::optional<EventFile> events_;  // with train.tensorboard
  std::unique_ptr<RankGrid> grid_;   // null: one process
  data::Loader loader_;
  Trainer trainer_;
};

}  // namespace longhand::train

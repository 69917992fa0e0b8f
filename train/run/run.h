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
/// reports and where its data is. All other options determine its results.
const std::vector<std::string>& resumable_options();

/// A training run with its directory. `longhand train` is this class with flags and a progress bar:
///
///     auto run = train::Run::create(train::Config::load("mqar.toml"), "runs/mqar");
///     run->train();
///     std::cout << run->summary().best.value_or(NAN) << '\n';
class Run {
 public:
  /// Creates a new run with this configuration; an empty path means runs/NAME-DATE-TIME. The
  /// directory must not hold a run, unless that is to be overwritten; one that ended before it
  /// saved or recorded anything does not count. Constructs data, model and optimizer first, and
  /// reads the checkpoints named by train.init_from and train.distill_from, so that an error
  /// changes nothing: overwritten files are removed when train() begins. A run that ends before its
  /// first step leaves no directory. Throws ConfigError and DataError.
  static std::unique_ptr<Run> create(Config config, const std::filesystem::path& directory,
                                     const std::string& name = "run",
                                     Existing existing = Existing::refuse);
  /// Resumes the run in this directory from its last checkpoint, or from the newest valid one if
  /// that is damaged (or from the start, reading train.init_from again, if it ended before anything
  /// was saved). `assignments` such as "train.steps=2000" may set resumable_options(). Writes
  /// nothing before train(), and nothing at all if the run is_finished(). Throws ConfigError for
  /// other options and if the directory holds no run; DataError if all checkpoints are damaged, if
  /// one is from another run, if the teacher has changed, or if the data's hashes differ from the
  /// checkpoint's, unless `accept_data`: that only warns.
  static std::unique_ptr<Run> resume(const std::filesystem::path& directory,
                                     const std::vector<std::string>& assignments = {},
                                     bool accept_data = false);

  /// Resumes the run in this directory, with this configuration's values of resumable_options(), or
  /// creates it if there is none. The same call can start, continue and extend a run. Throws
  /// ConfigError if the configuration differs from the run's in any other option, and whatever
  /// resume() and create() throw.
  static std::unique_ptr<Run> resume_or_create(Config config,
                                               const std::filesystem::path& directory,
                                               bool accept_data = false);

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Trains until there is a reason to stop, and writes metrics, checkpoints and the summary. The
  /// observer is notified of everything; its on_record is called after the record is written.
  /// Throws DivergedError after writing the summary and, with train.on_io_error = "stop", DataError
  /// after saving the state if metrics could not be written. Call at most once. With `lead`, trains
  /// together with the ranks that follow it, and throws what Lead::start() throws.
  Stopped train(Observer observer = {}, Lead* lead = nullptr);

  /// The contents of summary.json; before the end, as last written.
  const Summary& summary() const { return summary_; }

  const std::filesystem::path& path() const { return record_.path(); }
  Experiment& experiment() { return *experiment_; }
  /// Steps done so far; before train(), the step of the checkpoint.
  int64_t step() const { return trainer_.state().step; }
  bool resumed() const { return resumed_; }
  /// Returns whether a resumed run is complete: train() then returns at once and changes no file.
  bool is_finished() const { return finished_.has_value(); }
  /// Warnings known before train(): why the checkpoint it resumes from is not the last one, why
  /// resuming may not be bitwise identical, and advice() about options. Also in the summary.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  /// The parts from which a run is constructed, apart from its directory.
  struct Parts {
    std::unique_ptr<Experiment> experiment;
    Sources sources{};
    LossFn loss{};  // empty without a teacher
  };
  /// Reads the teacher and, without a checkpoint, the initial weights.
  static Parts prepare(Config config, const RunRecord* record, const Checkpoint* checkpoint);
  Run(Parts parts, RunRecord record, const ResumePoint* from, bool resumed, bool accept_data);
  void resume_from(const ResumePoint& from, bool accept_data);
  /// Continues the record of earlier processes, and removes the metrics that will be written again.
  void continue_record();
  /// Adds a warning to the summary, and passes it on.
  void warn(const std::string& warning);
  /// Calls f, which writes metrics; errors are handled according to train.on_io_error.
  template <class F>
  void write_metrics(F&& f);
  /// Returns the user's observer, called after this class's own work.
  Observer observe();
  /// Writes the metrics of earlier processes to a new TensorBoard event file.
  void open_events();
  void summarise(const std::string& status);
  void write_summary_so_far();

  std::unique_ptr<Experiment> experiment_;
  RunRecord record_;
  std::string config_;  // the effective configuration
  bool resumed_;
  std::vector<std::string> warnings_;
  bool metrics_failed_ = false;       // at the last attempt to write them
  std::exception_ptr metrics_error_;  // the error that ends the run
  Observer observer_;
  Summary summary_;
  std::optional<Stopped> finished_;  // why nothing is left to do
  ProcessSummary process_;           // this one
  double earlier_seconds_ = 0;       // of earlier processes
  int64_t earlier_memory_ = 0;
  double begin_ = 0;
  double next_summary_ = 0;  // from this time on, saving last.h5 also writes a summary
  Durations step_times_;
  std::optional<EventFile> events_;  // with train.tensorboard
  std::unique_ptr<RankGrid> grid_;   // null: one process
  data::Loader loader_;
  Trainer trainer_;
};

}  // namespace longhand::train

// Run: the life of a training run, from its configuration to its summary.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/experiment.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/trainer.h"

namespace longhand::train {

/// The options that a resumed run may change, as "train.steps": how long it goes on, what it
/// reports and where its data lies. All others decide its bits.
const std::vector<std::string>& resumable_options();

/// A training run with its directory. `longhand train` is this class with flags and a progress bar:
///
///     auto run = train::Run::create(train::Config::load("mqar.toml"), "runs/mqar");
///     run->train();
///     std::cout << run->summary().best.value_or(NAN) << '\n';
class Run {
 public:
  /// A new run of this configuration. Its directory must not hold a run; if it is empty, it is
  /// runs/NAME-DATE-TIME. Makes data, model and optimizer first, so that whatever is wrong leaves
  /// nothing behind: without a train() that begins, the directory is removed again. Throws
  /// ConfigError and DataError.
  static std::unique_ptr<Run> create(Config config, const std::filesystem::path& directory,
                                     const std::string& name = "run");
  /// Goes on with the run in this directory from its last checkpoint (from the start, if it ended
  /// before anything was saved), with assignments such as "train.steps=2000" to
  /// resumable_options(). Nothing is written before train(). Throws ConfigError for another option
  /// and for a directory that holds no run, DataError for a checkpoint that is damaged or of
  /// another run.
  static std::unique_ptr<Run> resume(const std::filesystem::path& directory,
                                     const std::vector<std::string>& assignments = {});

  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Trains until there is a reason to stop, and writes metrics, checkpoints and the summary. The
  /// observer hears of everything; its on_record comes after the record is written. Throws
  /// DivergedError after writing the summary. To be called once.
  Stopped train(Observer observer = {});

  /// What summary.json holds; of the state now, before the end.
  const Summary& summary() const { return summary_; }

  const std::filesystem::path& path() const { return record_.path(); }
  Experiment& experiment() { return *experiment_; }
  /// Steps done so far: those of the checkpoint before train().
  int64_t step() const { return trainer_.state().step; }
  bool resumed() const { return resumed_; }
  /// Why the checkpoint may not go on to the bits of an uninterrupted run; empty if it will.
  const std::string& warning() const { return warning_; }

 private:
  Run(std::unique_ptr<Experiment> experiment, RunRecord record, const Checkpoint* checkpoint,
      bool resumed);
  Observer observe();
  void summarise(const std::string& status, double seconds);

  std::unique_ptr<Experiment> experiment_;
  RunRecord record_;
  std::string config_;  // the effective configuration
  bool resumed_;
  std::string warning_;
  Observer observer_;
  Summary summary_;
  data::Loader loader_;
  Trainer trainer_;
};

}  // namespace longhand::train

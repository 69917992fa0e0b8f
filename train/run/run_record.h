// The files of a run, written and read: its configuration, metrics, checkpoints and summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config.h"
#include "longhand/train/trainer.h"

namespace longhand::train {

/// What is left to say when a run has ended.
struct Summary {
  std::string status;  // "finished", "early", "stopped" (by a signal, resumable) or "diverged"
  std::string task, attention;
  // Variant::algorithm() of the longest sequences, where there is more to say
  std::string algorithm;
  int64_t step = 0, steps = 0;
  int64_t parameters = 0;
  std::optional<Record> training;  // the last record of each kind, of this process
  std::optional<Record> validation;
  std::string best_metric;
  std::optional<double> best;  // its best value on the validation split, after best_step steps
  int64_t best_step = 0;
  uint64_t seed = 0;
  double seconds = 0;  // of this process
  int threads = 1;
  int64_t peak_memory = 0;  // bytes
};

/// One line of metrics.jsonl. Numbers that are not finite, which JSON does not know, are the texts
/// "NaN", "Infinity" and "-Infinity".
std::string to_json(const Record& record);
/// An object over several lines.
std::string to_json(const Summary& summary);

/// A directory with config.toml (the effective configuration), metrics.jsonl (one Record a line),
/// checkpoints/{last,best,step-N}.h5 and summary.json. While one lives it is locked: of two
/// processes that would write there, the second is refused. Everything throws ConfigError where the
/// caller chose the wrong directory, and DataError where the file system refuses.
class RunRecord {
 public:
  /// folder/NAME-DATE-TIME of now, with a number behind it if that is taken.
  static std::filesystem::path fresh_path(const std::filesystem::path& folder,
                                          const std::string& name);
  /// Throws ConfigError if a new run cannot begin there, because there is one already.
  static void check_free(const std::filesystem::path& path);
  /// Makes a new one, and the folders above it. Throws ConfigError if it holds a run already.
  static RunRecord create(const std::filesystem::path& path, const std::string& config);
  /// Opens one to go on with. Throws ConfigError if it holds no run.
  static RunRecord open(const std::filesystem::path& path);

  /// Removes again what create() has made, unless keep() was called.
  ~RunRecord();
  RunRecord(RunRecord&& other) noexcept;
  RunRecord& operator=(RunRecord&&) = delete;

  /// The run begins: from here on it stays.
  void keep() { made_ = nullptr; }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path last() const { return checkpoints() / "last.h5"; }

  void write_config(const std::string& toml) const;
  void append(const Record& record) const;
  /// Drops the metrics of later steps than this, which a resumed run will write again, and a last
  /// line that was cut off.
  void cut_metrics(int64_t step) const;
  void write_summary(const Summary& summary) const;

 private:
  RunRecord(std::filesystem::path path, int lock);
  static int lock(const std::filesystem::path& path);
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  std::filesystem::path path_;
  int lock_ = -1;
  /// The topmost folder that create() has made; null: nothing to remove.
  std::unique_ptr<std::filesystem::path> made_;
};

/// What a run has written, read back.
struct RecordedRun {
  std::string name;    // its directory
  std::string config;  // config.toml; empty if there is none
  std::vector<Record> metrics;
  std::optional<Summary> summary;  // none while it runs
};

/// Reads a run's directory, also while the run goes on. Numbers that a file lacks are NaN. Throws
/// ConfigError if the directory holds no run, and DataError, naming file and line, for what cannot
/// be read.
RecordedRun read_run(const std::filesystem::path& path);

/// The file of a checkpoint of a run: `name` is "best", "last", or the name of a file in its
/// checkpoints folder. Without a best one (nothing was evaluated yet) it is the last. `run` may
/// also be a checkpoint file itself. Throws ConfigError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& run, const std::string& name);

/// A checkpoint of a run with the configuration it holds.
struct SavedModel {
  std::string file;
  Checkpoint checkpoint;
  Config config;
};

/// The checkpoint that find_checkpoint() finds, verified. Throws DataError if it is not sound.
SavedModel load_model(const std::filesystem::path& run, const std::string& name = "best");

}  // namespace longhand::train

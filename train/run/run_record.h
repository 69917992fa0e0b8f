// The files of a run: configuration, metrics, checkpoints and summary.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhand/train/checkpoint/checkpoint.h"
#include "longhand/train/config/config.h"
#include "longhand/train/trainer.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {

/// The checkpoints of other runs from which a run started.
struct Sources {
  std::optional<Initialisation> init;  // see train.init_from
  std::optional<Source> teacher;       // see train.distill_from
};

/// The work of one process of a run.
struct ProcessSummary {
  std::string host{};           // empty: unknown, if killed before it was written
  int threads = 0;              // 0: unknown
  int ranks = 1;                // ranks training together; time and memory are of the first
  int64_t begin = 0, step = 0;  // steps done at its start and at its last report
  int64_t trained = 0;          // steps it performed, with tokens and time; 0: none or unknown
  int64_t tokens = 0;
  double training_seconds = 0;
  std::optional<double> step_seconds{};  // median; nothing without steps
  double seconds = 0;                    // including evaluation and saving
  int64_t peak_memory = 0;               // bytes
};

/// The result of a run, or its state so far.
struct Summary {
  /// "finished", "early", "stopped" (by a signal, resumable) or "diverged"; "running" while it is
  /// running or if it was killed
  std::string status;
  std::string task, attention;
  int64_t length = 0;  // length of the longest sequence in the data
  // Variant::algorithm() for the longest sequences, if it differs from the name
  std::string algorithm;
  int64_t step = 0, steps = 0;
  int64_t parameters = 0;
  std::optional<Record> training;  // the last record of each kind
  std::optional<Record> validation;
  std::string best_metric;
  std::optional<double> best;  // best value on the validation split, at best_step
  int64_t best_step = 0;
  int64_t skipped = 0;  // steps whose update was skipped: see train.on_bad_step
  uint64_t seed = 0;
  /// All processes of the run, this one last. Work that was lost when a process was killed, and
  /// then repeated, counts twice.
  std::vector<ProcessSummary> processes{};
  double seconds = 0;  // the sum over all processes
  /// Median time of a step, without evaluation, in the process that performed the median step;
  /// nothing without steps.
  std::optional<double> step_seconds;
  /// Tokens of all steps, without padding, divided by their time, without evaluation.
  std::optional<double> tokens_per_second;
  std::string host;  // of the last process
  int threads = 1;
  int64_t peak_memory = 0;  // bytes, highest of all processes
  int64_t state_bytes = 0;  // decoding state for the longest sequence; 0: no decoder
  std::string version;      // Longhand's version
  std::string machine;      // machine_description()
  std::map<std::string, std::string> provenance{};  // of the last process: see provenance()
  /// Problems that did not end the run, from all processes that wrote a summary.
  std::vector<std::string> warnings{};
  /// data::Dataset::fingerprint() by split.
  std::map<std::string, std::string> data{};
  std::vector<PluginRecord> plugins{};  // used by the run; variants, tasks: not read back
  Sources sources{};

  /// Derives seconds, step_seconds, tokens_per_second, host, threads and peak_memory from
  /// `processes`.
  void add_up();
};

/// Returns one line of metrics.jsonl. Non-finite numbers, which JSON does not support, become the
/// strings "NaN", "Infinity" and "-Infinity".
std::string to_json(const Record& record);
/// Returns the summary as multi-line JSON.
std::string to_json(const Summary& summary);

/// A checkpoint of a run to continue from.
struct ResumePoint {
  std::filesystem::path file;
  Checkpoint checkpoint;
  std::string warning{};  // why it is not last.h5; empty if it is
};

/// The checkpoints of a run, read and verified.
struct VerifiedCheckpoints {
  struct Valid {
    std::filesystem::path file;
    TrainingState training;
  };
  std::vector<Valid> valid{};                                        // most steps first
  std::vector<std::pair<std::filesystem::path, std::string>> bad{};  // with the reason

  /// Returns null if the file is not valid.
  const Valid* find(const std::filesystem::path& file) const;
};

/// The metrics of a run that is about to be resumed.
struct EarlierMetrics {
  std::string kept;                            // the lines up to a checkpoint
  std::string damage{};                        // damaged or missing lines; empty: none
  std::optional<Record> training, validation;  // the last kept of each kind
  // Of all lines, also of those that are not kept.
  int64_t step = 0;
  double seconds = 0;
  int64_t peak_memory = 0;
};

/// The metrics of a run with damaged or missing lines, from before it was resumed.
inline constexpr const char* damaged_metrics = "metrics.damaged.jsonl";

/// What to do if a directory already holds a run.
enum class Existing { refuse, overwrite };

/// Returns an unused file name: `first`, or first-2, and so on.
std::filesystem::path unused_path(const std::filesystem::path& first);

/// A directory with config.toml (the effective configuration), metrics.jsonl (one Record per line),
/// checkpoints/{last,previous,best,step-N}.h5 and summary.json. It is locked as long as this object
/// exists: other processes that want to write there are refused. All functions throw ConfigError if
/// the caller chose the wrong directory, and DataError if the file system reports an error.
class RunRecord {
 public:
  /// Returns folder/NAME-DATE-TIME for the current time, with a number appended if that exists.
  static std::filesystem::path fresh_path(const std::filesystem::path& folder,
                                          const std::string& name);
  /// Returns whether the directory holds a resumable run, one that has saved or recorded something.
  static bool holds_run(const std::filesystem::path& path);
  /// Throws ConfigError if the directory cannot take a new run: because it holds a run (with
  /// Existing::refuse), parts of one, or a config.toml that does not belong to a run. A run that
  /// ended before it saved or recorded anything does not count.
  static void check_free(const std::filesystem::path& path, Existing existing = Existing::refuse);
  /// Creates the directory of a new run, including its parents. A run that it already holds is not
  /// changed before start(). Throws ConfigError as check_free() does.
  static RunRecord create(const std::filesystem::path& path, Existing existing = Existing::refuse);
  /// Opens an existing run to resume. Throws ConfigError if the directory holds no run.
  static RunRecord open(const std::filesystem::path& path);

  /// Begins the run after create(): removes the files of another run and writes config.toml, which
  /// makes the directory a run.
  void start(const std::string& toml);
  /// Call once the run has a result: from then on its directory is kept.
  void keep() { made_ = nullptr; }

  /// Removes what create() and start() created, unless keep() was called.
  ~RunRecord();
  RunRecord(RunRecord&& other) noexcept;
  RunRecord& operator=(RunRecord&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path last() const { return checkpoints() / "last.h5"; }

  /// Reads and verifies all checkpoints.
  VerifiedCheckpoints verified_checkpoints() const;
  /// Loads last.h5. If it is missing or invalid, reads the other checkpoints and returns the valid
  /// one with the most steps, with a warning. Returns nothing if the run has not saved a checkpoint
  /// yet; throws DataError if none is valid or none is left.
  std::optional<ResumePoint> resume_point() const;
  /// Throws DataError if the run has no checkpoint but had saved one according to summary.json.
  void check_never_saved() const;

  void write_config(const std::string& toml) const;
  /// Appends a line to metrics.jsonl. If that fails, throws DataError and keeps the line to write
  /// it with the next one.
  void append(const Record& record);
  /// Likewise for the hash of the parameters at a step.
  void append_hash(int64_t step, const std::string& hash);
  /// Writes lines that could not be written earlier, and makes metrics.jsonl durable.
  void sync_metrics();
  /// Reads the metrics of a run about to be resumed from this state. A line is damaged if it is
  /// incomplete, is not a JSON object with a step, or if its step is not above the previous step of
  /// its split. Lines are missing if this state has recorded later steps.
  EarlierMetrics earlier_metrics(const TrainingState& state) const;
  /// Reduces the metrics to earlier.kept, without damaged lines or lines that the resumed run will
  /// write again. If lines are damaged or missing, the original stays as metrics.damaged.jsonl.
  void cut_metrics(const EarlierMetrics& earlier) const;
  void write_summary(const Summary& summary) const;
  /// Reads summary.json; nothing if there is none. Throws DataError if it is not a JSON object.
  std::optional<Summary> summary() const;
  /// Writes sources.json.
  void write_sources(const Sources& sources) const;
  /// Reads sources.json; empty if there is none. Throws DataError if it is not a JSON object.
  Sources sources() const;

 private:
  RunRecord(std::filesystem::path path, int lock);
  /// Locks the directory.
  explicit RunRecord(const std::filesystem::path& path);
  /// Returns all checkpoints, in alphabetical order.
  std::vector<std::filesystem::path> checkpoint_files() const;
  void append(const std::string& line);
  void write_lines();
  /// Removes the files of a run, config.toml first, so that no partial run is left; with `events`,
  /// also TensorBoard event files.
  void remove_files(bool events = true) const;
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  std::filesystem::path path_;
  int lock_ = -1;
  /// The topmost folder that create() created, or an empty path if it created none; null if there
  /// is nothing to remove.
  std::unique_ptr<std::filesystem::path> made_;
  std::string unwritten_;  // pending lines of metrics.jsonl
  bool synced_ = false;    // metrics.jsonl is unchanged since it was made durable
};

/// The recorded data of a run.
struct RecordedRun {
  std::string name;    // its directory
  std::string config;  // config.toml; empty if there is none
  std::vector<Record> metrics;
  std::map<int64_t, std::string> hashes;  // of the parameters, by step: see train.hash_every
  std::optional<Summary> summary;         // none before its first checkpoint
};

/// Reads summary.json. Throws DataError if it is not a JSON object.
Summary read_summary(const std::filesystem::path& path);

/// Reads the directory of a run, even while it is running or if it ended before its first record.
/// Numbers missing from a file are NaN. Throws ConfigError if the directory holds no run, and
/// DataError, naming file and line, for unreadable contents.
RecordedRun read_run(const std::filesystem::path& path);

/// Throws ConfigError if a model cannot be written to this path, which must be an empty folder or
/// not exist.
void check_model_path(const std::filesystem::path& path);

/// Creates a directory with config.toml, checkpoints/best.h5 and checkpoints/last.h5, whose model
/// can be evaluated and trained further as a new run. It cannot be resumed because last.h5 has no
/// optimizer state. Throws as check_model_path(), and DataError if it cannot be written; nothing is
/// left behind then.
void write_model(const std::filesystem::path& path, const Checkpoint& checkpoint);

}  // namespace longhand::train

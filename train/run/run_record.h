// The files of a run: its configuration, metrics, checkpoints and summary.
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

/// The checkpoints of other runs that a run began with.
struct Sources {
  std::optional<Initialisation> init;  // see train.init_from
  std::optional<Source> teacher;       // see train.distill_from
};

/// What one of the processes of a run did.
struct ProcessSummary {
  std::string host{};           // empty: unknown, because it was killed before it could write it
  int threads = 0;              // 0: unknown
  int ranks = 1;                // that trained together; time and memory are those of the first
  int64_t begin = 0, step = 0;  // steps done when it began and at its last report
  int64_t trained = 0;  // steps that it did, with their tokens and time; 0: none, or unknown
  int64_t tokens = 0;
  double training_seconds = 0;
  std::optional<double> step_seconds{};  // median; nothing if it did none
  double seconds = 0;                    // with evaluation and saving
  int64_t peak_memory = 0;               // bytes
};

/// The result of a run, or what is known of it so far.
struct Summary {
  /// "finished", "early", "stopped" (by a signal, resumable) or "diverged"; "running" while it is,
  /// or if it was killed
  std::string status;
  std::string task, attention;
  int64_t length = 0;  // of the longest sequence of the data
  // Variant::algorithm() for the longest sequences, if it differs from the name
  std::string algorithm;
  int64_t step = 0, steps = 0;
  int64_t parameters = 0;
  std::optional<Record> training;  // the last record of each kind
  std::optional<Record> validation;
  std::string best_metric;
  std::optional<double> best;  // its best value on the validation split, after best_step steps
  int64_t best_step = 0;
  int64_t skipped = 0;  // steps whose update was skipped: see train.on_bad_step
  uint64_t seed = 0;
  /// Of all processes, of which the last one is this. Work that was lost when one was killed, and
  /// done again, counts twice.
  std::vector<ProcessSummary> processes{};
  double seconds = 0;  // the sum over all processes
  /// Median time of a step, without evaluation, of the process in which the median step was done;
  /// nothing if none was.
  std::optional<double> step_seconds;
  /// Tokens of all steps, without padding, by the time of all steps, without evaluation.
  std::optional<double> tokens_per_second;
  std::string host;  // of the last process
  int threads = 1;
  int64_t peak_memory = 0;  // bytes, of the process with the highest
  int64_t state_bytes = 0;  // that decoding keeps for the longest sequence; 0: it has no decoder
  std::string version;      // of Longhand
  std::string machine;      // machine_description()
  std::map<std::string, std::string> provenance{};  // of the last process: see provenance()
  /// What went wrong without ending the run, in all processes as far as they wrote a summary.
  std::vector<std::string> warnings{};
  /// By split, data::Dataset::fingerprint().
  std::map<std::string, std::string> data{};
  std::vector<PluginRecord> plugins{};  // used by the run; variants, tasks: not read back
  Sources sources{};

  /// Sets seconds, step_seconds, tokens_per_second, host, threads and peak_memory to what follows from
  /// `processes`.
  void add_up();
};

/// One line of metrics.jsonl. Numbers that are not finite, which JSON does not support, are the
/// strings "NaN", "Infinity" and "-Infinity".
std::string to_json(const Record& record);
/// The summary as JSON over several lines.
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
  std::vector<Valid> valid{};  // the one after the most steps first
  std::vector<std::pair<std::filesystem::path, std::string>> bad{};  // with the reason

  /// Null if it is not valid.
  const Valid* find(const std::filesystem::path& file) const;
};

/// The metrics of a run that is going to be resumed.
struct EarlierMetrics {
  std::string kept;                            // the lines up to a checkpoint
  std::string damage{};                        // lines that are damaged or missing; empty: none
  std::optional<Record> training, validation;  // the last of each kind among them
  // Of all lines, also of those that are not kept.
  int64_t step = 0;
  double seconds = 0;
  int64_t peak_memory = 0;
};

/// The metrics of a run with damaged or missing lines, before it was resumed.
inline constexpr const char* damaged_metrics = "metrics.damaged.jsonl";

/// What to do with a directory that holds a run already.
enum class Existing { refuse, overwrite };

/// A name that no file has: `first`, or first-2, and so on.
std::filesystem::path unused_path(const std::filesystem::path& first);

/// A directory with config.toml (the effective configuration), metrics.jsonl (one Record per line),
/// checkpoints/{last,previous,best,step-N}.h5 and summary.json. It is locked during the lifetime of
/// this object: a second process that wants to write there is refused. All functions throw ConfigError
/// if the caller chose the wrong directory, and DataError if the file system reports an error.
class RunRecord {
 public:
  /// Returns folder/NAME-DATE-TIME for the current time, with a number appended if that exists.
  static std::filesystem::path fresh_path(const std::filesystem::path& folder,
                                          const std::string& name);
  /// Whether the directory holds a run that may be resumed: one that has saved or recorded something.
  static bool holds_run(const std::filesystem::path& path);
  /// Throws ConfigError if the directory cannot be that of a new run: because it holds a run, with
  /// Existing::refuse, parts of one, or a config.toml that is not of a run. A run that ended before it
  /// saved or recorded anything does not count.
  static void check_free(const std::filesystem::path& path, Existing existing = Existing::refuse);
  /// Creates the directory of a new run, and the folders above it. A run that it holds already is
  /// not changed before start(). Throws ConfigError as check_free() does.
  static RunRecord create(const std::filesystem::path& path, Existing existing = Existing::refuse);
  /// Opens an existing run to resume. Throws ConfigError if the directory holds no run.
  static RunRecord open(const std::filesystem::path& path);

  /// Begins the run after create(): removes the files of another run, and writes config.toml, with
  /// which the directory holds a run.
  void start(const std::string& toml);
  /// Call once the run has a result: from then on its directory is kept.
  void keep() { made_ = nullptr; }

  /// Removes what create() and start() have made, unless keep() was called.
  ~RunRecord();
  RunRecord(RunRecord&& other) noexcept;
  RunRecord& operator=(RunRecord&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path config() const { return path_ / "config.toml"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path last() const { return checkpoints() / "last.h5"; }

  /// Reads and verifies all checkpoints.
  VerifiedCheckpoints verified_checkpoints() const;
  /// Loads last.h5. If it is missing or invalid, loads the others and returns the valid one after the
  /// most steps, with a warning. Nothing if the run has not saved a checkpoint yet; throws DataError if
  /// none is valid, or none is left.
  std::optional<ResumePoint> resume_point() const;
  /// Throws DataError if the run, which has no checkpoint, had saved one, as summary.json tells.
  void check_never_saved() const;

  void write_config(const std::string& toml) const;
  /// Appends a line to metrics.jsonl. If that fails, it throws DataError, and the line is written with
  /// the next one.
  void append(const Record& record);
  /// The same for the hash of the parameters after some steps.
  void append_hash(int64_t step, const std::string& hash);
  /// Writes lines that could not be written before, and makes metrics.jsonl durable.
  void sync_metrics();
  /// Reads the metrics of a run that is going to be resumed from this state. A line is damaged if it is
  /// incomplete, is not a JSON object with a step, or if its step is not above those of its split before it;
  /// lines are missing if this state has recorded later steps.
  EarlierMetrics earlier_metrics(const TrainingState& state) const;
  /// Keeps of the metrics earlier.kept alone: not those that the resumed run will write again, nor
  /// damaged lines. If lines are damaged or missing, the file as it was remains as metrics.damaged.jsonl.
  void cut_metrics(const EarlierMetrics& earlier) const;
  void write_summary(const Summary& summary) const;
  /// Reads summary.json; nothing if there is none. Throws DataError if it is no JSON object.
  std::optional<Summary> summary() const;
  /// Writes sources.json.
  void write_sources(const Sources& sources) const;
  /// Reads sources.json; empty if there is none. Throws DataError if it is no JSON object.
  Sources sources() const;

 private:
  RunRecord(std::filesystem::path path, int lock);
  /// Locks the directory.
  explicit RunRecord(const std::filesystem::path& path);
  /// All checkpoints, in alphabetical order.
  std::vector<std::filesystem::path> checkpoint_files() const;
  void append(const std::string& line);
  void write_lines();
  /// Removes the files of a run, config.toml first, so that a run is not left with some of them; also the
  /// event files for TensorBoard, if `events`.
  void remove_files(bool events = true) const;
  std::filesystem::path metrics() const { return path_ / "metrics.jsonl"; }

  std::filesystem::path path_;
  int lock_ = -1;
  /// The topmost folder that create() has created, or an empty path if it created none; null if
  /// there is nothing to remove.
  std::unique_ptr<std::filesystem::path> made_;
  std::string unwritten_;  // lines of metrics.jsonl
  bool synced_ = false;    // nothing was written to it since it was made durable
};

/// The recorded data of a run.
struct RecordedRun {
  std::string name;    // its directory
  std::string config;  // config.toml; empty if there is none
  std::vector<Record> metrics;
  std::map<int64_t, std::string> hashes;  // of the parameters, by step: see train.hash_every
  std::optional<Summary> summary;         // none before its first checkpoint
};

/// Reads summary.json. Throws DataError if it is no JSON object.
Summary read_summary(const std::filesystem::path& path);

/// Reads the directory of a run, also while it is running, or if it ended before its first record.
/// Numbers missing from a file are NaN.
/// Throws ConfigError if the directory holds no run, and DataError, naming file and line, for
/// unreadable contents.
RecordedRun read_run(const std::filesystem::path& path);

/// Throws ConfigError if a model cannot be written to this path: unless it is an empty folder or does
/// not exist.
void check_model_path(const std::filesystem::path& path);

/// Creates a directory with config.toml, checkpoints/best.h5 and checkpoints/last.h5, from which a
/// model can be evaluated and further trained as a new run. It cannot be resumed, because last.h5
/// has no state of an optimizer. Throws as check_model_path(), and DataError if it cannot be
/// written; nothing remains then.
void write_model(const std::filesystem::path& path, const Checkpoint& checkpoint);

}  // namespace longhand::train

// Cells: the state of a cell according to its directory, and the right to run it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/grid.h"
#include "longhand/train/lab/manifest.h"
#include "longhand/train/run/child.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

/// Loss and accuracy on a segment of a mixture, such as one length.
struct SegmentScore {
  std::string name;
  double loss = 0, accuracy = 0;
  int64_t length = 0;  // data::Segment::length; 0 in files of earlier versions
};

/// Loss and accuracy on a split.
struct Score {
  double loss = 0, accuracy = 0;
  int64_t examples = 0;                  // 0: unknown
  std::vector<SegmentScore> segments{};  // empty if there is only one
};

enum class CellStatus {
  waiting,        // not started
  running,        // by some process
  interrupted,    // its process vanished; it continues from its checkpoint
  stopped,        // saved, by a signal or to be compared with other trials
  halved,         // ended as one of the worse half of the trials
  trained,        // but not evaluated on the test split; trials never are
  finished,       // trained and evaluated
  damaged,        // its files have changed; neither failed nor done until repaired
  diverged,       // as another attempt would
  out_of_memory,  // the kernel or the allocator refused
  crashed,        // ended by a signal
  failed,         // ended with an error
};
using longhand::to_string;  // for options
std::string to_string(CellStatus status);

/// cell.json: what the sweep knows about a cell apart from its run.
struct CellRecord {
  std::string variant;  // its label
  Settings values;      // values of the axes and of the search
  int64_t seed = 0;
  std::string phase;  // "search" or "final"
  CellStatus status = CellStatus::waiting;
  std::string reason{};     // reason of a failure, or what is damaged
  int64_t attempts = 0;     // processes that have trained it
  int64_t jobs = 0;         // cells run concurrently, including this one; 0: unknown
  double seconds = 0;       // total of these processes, as far as their end was observed
  int64_t peak_memory = 0;  // bytes, maximum over these processes
  pid_t pid = 0;            // of the process that runs it
  std::string log{};        // the last lines of log.txt, after a failure
};

/// The state of a cell.
struct CellState {
  CellStatus status = CellStatus::waiting;
  CellRecord record{};
  std::optional<Summary> summary{};
  std::optional<Score> validation{};       // score of the best checkpoint
  std::map<int64_t, Score> evaluations{};  // on the validation split, by step
  std::optional<Score> test{};

  /// Returns whether its run is complete, evaluated or not.
  bool is_trained() const {
    return summary && (summary->status == "finished" || summary->status == "early");
  }
  bool has_failed() const { return status >= CellStatus::diverged; }
  /// Returns whether the data of a completed run has a test split; without one, `test` refers to
  /// the validation split.
  bool has_test_split() const {
    return !summary || summary->data.empty() || summary->data.contains("test");
  }
};

/// Returns the options with which a cell is trained.
TrainerOptions trainer_options(const SweepCell& cell);
/// Returns the directory of a cell in a sweep: sweep/cells/HASH.
std::filesystem::path cell_directory(const std::filesystem::path& sweep, const SweepCell& cell);
/// Returns the state that a cell's files show. If a file is not as recorded in the sweep's
/// manifest, not as Longhand writes it, or unreadable, the cell is damaged and nothing more.
CellState read_cell(const std::filesystem::path& directory, const Manifest& manifest);
/// Likewise, with the current manifest.
CellState read_cell(const std::filesystem::path& directory);
/// Returns whether the cell has files in checkpoints/, which archives of results omit.
bool has_checkpoints(const std::filesystem::path& directory);
/// Returns the contents of cell.json before the cell is run.
CellRecord new_record(const Grid& grid, const SweepCell& cell);
/// Writes cell.json durably.
void write_record(const std::filesystem::path& directory, const CellRecord& record);
/// Returns the scores in the output of evaluate --json. Throws DataError for other text.
Score score_of(const std::string& json);
/// Writes test.json, the output of evaluate --json, durably. Throws DataError for other text.
void write_test(const std::filesystem::path& directory, const std::string& json);
/// Returns the last step in metrics.jsonl, even while it is being written; 0 if there is none.
int64_t last_step(const std::filesystem::path& directory);
/// Returns the size of the files to which a cell appends while running: growth is progress.
int64_t bytes_written(const std::filesystem::path& directory);
/// Returns command words that give the current location of a cell's data; none if its config.toml,
/// which may come from another machine, gives it, or does not exist.
std::vector<std::string> place_of_data(const SweepCell& cell,
                                       const std::filesystem::path& directory);
/// Returns a process of the program for a cell, configured independently of the environment.
ChildOptions process_of_cell(const std::filesystem::path& program,
                             std::vector<std::string> arguments, int64_t threads);
/// Returns whether the kernel reports a process as stopped, by SIGSTOP or similar.
bool is_stopped(pid_t pid);
/// Returns the last lines of log.txt, at most `bytes` long.
std::string log_tail(const std::filesystem::path& directory, int64_t bytes = 2000);

/// A temporary directory, removed by the destructor. Throws DataError if it cannot be created.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::filesystem::path path;
};

/// The exclusive right to run a cell, held by this process and by children that inherit file(); it
/// ends with the last of them.
class Claim {
 public:
  /// Creates the directory if necessary, and removes what killed processes have left in it. Returns
  /// null if another process has the right. Throws DataError.
  static std::unique_ptr<Claim> take(const std::filesystem::path& directory,
                                     const char* name = "lock");
  /// Takes the right to work in a sweep's directory, which other processes may share. Creates it if
  /// necessary. Removes what killed processes have left in it if no other process has the right,
  /// and in each cell that is not running. Throws DataError.
  static std::unique_ptr<Claim> share(const std::filesystem::path& sweep);
  /// Returns whether a process currently has the right.
  static bool is_taken(const std::filesystem::path& directory);
  ~Claim();
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  int file() const { return file_; }

 private:
  explicit Claim(int file) : file_(file) {}
  int file_;
};

/// The states of the cells of a sweep, by hash.
using CellStates = std::map<std::string, CellState>;
CellStates read_cells(const Grid& grid, const std::filesystem::path& sweep);

/// Returns the metric of a sweep, "accuracy" or "loss", from a score.
double metric_of(const Sweep& sweep, const Score& score);

}  // namespace longhand::train

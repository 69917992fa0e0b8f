// Cells: what the directory of a cell says about its state, and the right to run it.
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
  std::vector<SegmentScore> segments{};  // none if there is one
};

enum class CellStatus {
  waiting,        // not started
  running,        // by some process
  interrupted,    // its process ended without a word; it continues from its checkpoint
  stopped,        // by a signal, or to be compared with other trials, and saved
  halved,         // ended in the worse half of the trials
  trained,        // but not evaluated on the test split, which trials of a search are not
  finished,       // trained and evaluated
  damaged,        // its files are not as they were written; neither failed nor done until repaired
  diverged,       // which another attempt would do again
  out_of_memory,  // the kernel or the allocator refused
  crashed,        // ended by a signal
  failed,         // ended with an error
};
using longhand::to_string;  // of options
std::string to_string(CellStatus status);

/// cell.json: what the sweep knows about a cell besides its run.
struct CellRecord {
  std::string variant;  // its label
  Settings values;      // of the axes and of the search
  int64_t seed = 0;
  std::string phase;  // "search" or "final"
  CellStatus status = CellStatus::waiting;
  std::string reason{};     // of a failure, or what is damaged
  int64_t attempts = 0;     // processes that have trained it
  int64_t jobs = 0;         // cells side by side with it, itself included; 0: unknown
  double seconds = 0;       // that they took, as far as their end was seen
  int64_t peak_memory = 0;  // bytes, of any of them
  pid_t pid = 0;            // of the process that runs it
  std::string log{};        // the last lines of log.txt, after a failure
};

/// The state of a cell.
struct CellState {
  CellStatus status = CellStatus::waiting;
  CellRecord record{};
  std::optional<Summary> summary{};
  std::optional<Score> validation{};       // of the best checkpoint
  std::map<int64_t, Score> evaluations{};  // on the validation split, by step
  std::optional<Score> test{};

  /// Whether its run has come to its end, evaluated or not.
  bool is_trained() const {
    return summary && (summary->status == "finished" || summary->status == "early");
  }
  bool has_failed() const { return status >= CellStatus::diverged; }
  /// Whether the data of a run that has ended have a test split; without one, `test` is of the
  /// validation split.
  bool has_test_split() const {
    return !summary || summary->data.empty() || summary->data.contains("test");
  }
};

/// The options with which a cell is trained.
TrainerOptions trainer_options(const SweepCell& cell);
/// The directory of a cell of a sweep: sweep/cells/HASH.
std::filesystem::path cell_directory(const std::filesystem::path& sweep, const SweepCell& cell);
/// The state that the files of a cell show. If one is not as recorded in the manifest of the sweep, not
/// as Longhand writes it, or cannot be read, the cell is damaged, and nothing else is said about it.
CellState read_cell(const std::filesystem::path& directory, const Manifest& manifest);
/// The same, with the manifest as it is now.
CellState read_cell(const std::filesystem::path& directory);
/// Whether the cell has a file in checkpoints/: an archive of results leaves them out.
bool has_checkpoints(const std::filesystem::path& directory);
/// What cell.json says of a cell before it is run.
CellRecord new_record(const Grid& grid, const SweepCell& cell);
/// Writes cell.json durably.
void write_record(const std::filesystem::path& directory, const CellRecord& record);
/// The scores in the output of evaluate --json. Throws DataError if it is no such output.
Score score_of(const std::string& json);
/// Writes test.json, the output of evaluate --json, durably. Throws DataError if it is no such output.
void write_test(const std::filesystem::path& directory, const std::string& json);
/// The last step in metrics.jsonl, also while it is written; 0 if there is none.
int64_t last_step(const std::filesystem::path& directory);
/// Bytes in the files that a cell appends to while it is trained or evaluated: more are progress.
int64_t bytes_written(const std::filesystem::path& directory);
/// Where the data of a cell are now, as words of its command; none if its config.toml, which may come from another
/// machine, says so itself, or does not exist.
std::vector<std::string> place_of_data(const SweepCell& cell,
                                       const std::filesystem::path& directory);
/// A process of the program for a cell, whose configuration does not depend on the environment.
ChildOptions process_of_cell(const std::filesystem::path& program,
                             std::vector<std::string> arguments, int64_t threads);
/// Whether the kernel says that a process was stopped, by SIGSTOP or the like.
bool is_stopped(pid_t pid);
/// The last lines of log.txt, at most `bytes` long.
std::string log_tail(const std::filesystem::path& directory, int64_t bytes = 2000);

/// A directory for temporary files, which the destructor removes. Throws DataError if it cannot be created.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::filesystem::path path;
};

/// The exclusive right to run a cell, held by this process and by the children that inherit file():
/// it ends with the last of them.
class Claim {
 public:
  /// Creates the directory if it does not exist, and removes what killed processes have left in it.
  /// Null if another process has the right. Throws DataError.
  static std::unique_ptr<Claim> take(const std::filesystem::path& directory,
                                     const char* name = "lock");
  /// The right to work in the directory of a sweep, which other processes may have at the same time.
  /// Creates it if it does not exist; if no other process has the right, and for each cell that none
  /// runs, removes what killed processes have left. Throws DataError.
  static std::unique_ptr<Claim> share(const std::filesystem::path& sweep);
  /// Whether a process has the right now.
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

/// The metric of a sweep, "accuracy" or "loss".
double metric_of(const Sweep& sweep, const Score& score);

}  // namespace longhand::train

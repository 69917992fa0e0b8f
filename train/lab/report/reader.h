// Reads the contents of a report: runs, sweeps and results of analyses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/train/lab/cell.h"
#include "longhand/train/results/table.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

/// A run, or a cell of a sweep, which may not have started.
struct ReportedRun {
  RecordedRun record{};                          // its name is the path
  std::map<std::string, OptionValue> options{};  // the effective configuration; a cell that has not
                                                 // started: the values of its axes
  std::string sweep{};                           // of a cell: ReportedResults::name() of its sweep
  std::string variant{};                         // a cell's label; empty: not a cell
  std::string phase{};                           // of a cell: "search" or "final"
  std::string status{};                          // Summary::status, a cell's status, or "running"
  std::string reason{};                          // of a failure
  int64_t seed = 0;
  std::string metric{};               // of its sweep, if known: "accuracy" or "loss"
  std::optional<Score> test{};        // test.json: the output of evaluate --json
  std::optional<Score> validation{};  // from the best checkpoint, else the last record
  std::string checkpoint{};           // "best.h5" or "last.h5"; empty: none
  std::string checkpoint_digest{};    // stored_digest()

  /// Returns an option as text without quotes; empty if it was not given.
  std::string option(const std::string& name) const;
  /// Returns whether its numbers do not count.
  bool has_failed() const;
};

struct ReportedResults {
  std::string path;  // of the file
  Results results;

  /// Returns the directory of a sweep, or the path of another file.
  std::string name() const;
  /// Returns the metric by which a sweep compares, "accuracy" or "loss"; empty for other results.
  std::string metric() const;
};

struct ReportInputs {
  std::vector<ReportedRun> runs;
  std::vector<ReportedResults> results;
  size_t waiting = 0;  // cells of sweeps that have not started, not among the runs
};

/// Reads each path: the directory of a run, the directory of a sweep (its own cells and
/// results.json, if they exist; not the cells of a previous sweep there), a folder of these, up to
/// three levels deep, a folder of files with Results, or such a file. Each is read only once even
/// if several paths name it. Also reads runs and sweeps in progress. Throws ConfigError if a path
/// is none of these, and DataError, naming the file, for unreadable contents.
ReportInputs read_inputs(const std::vector<std::filesystem::path>& paths);

}  // namespace longhand::train

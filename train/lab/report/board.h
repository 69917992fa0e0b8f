// Board: compares runs. Groups them by variant, and determines what differs and which is best.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhand/train/lab/headline.h"
#include "longhand/train/lab/report/reader.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// A variant is a configuration without its seed: runs with the same label.
struct Board {
  std::vector<std::string> variants;              // labels, best first
  std::vector<std::optional<size_t>> variant_of;  // by run; trials of a search have none
  std::vector<std::string> names;                 // labels without the task; within a task, unique
  std::vector<std::string> tasks;                 // combinations of data options
  std::vector<size_t> task_of;                    // by variant
  std::vector<SeedScores> scores;                 // by variant
  /// One row per variant, best first; then rows of heuristics, whose "seeds" are not available.
  /// Columns: variant, score, low, high, seeds, status, the options that differ, loss, costs.
  Table leaderboard;
  Table runs;                                 // one row per run, by variant and seed
  Table matrix;                               // a row per task and variant; of one task, empty
  std::vector<std::string> summary;           // sentences: which variant is best, and by how much
  std::map<std::string, std::string> shared;  // options that all runs have
  std::vector<std::map<std::string, std::string>> own;  // by variant: its other options
  std::vector<std::string> provenance;  // machine, version and data, if common to all runs
};

/// The score of a run is the accuracy on the test split if any run was evaluated on it, else on the
/// validation split; for language models, bits per byte instead of accuracy. Diverged and failed
/// runs have none. Each task, a combination of data options, has its own metric. Intervals over
/// seeds come from estimate(); those of an accuracy are clamped to [0, 1].
Board compare(const ReportInputs& inputs);

}  // namespace longhand::train

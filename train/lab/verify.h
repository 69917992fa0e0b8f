// Verify: what the checkpoints of a sweep say, and the repair of damaged cells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

struct VerifyOptions {
  int64_t threads = 1;
  std::function<void(int64_t done, int64_t all)> on_progress = {};
  std::function<bool()> should_stop = {};  // true ends it after the cell at hand
};

struct Verification {
  CellStates states;                     // with the scores that the checkpoints give
  int64_t cells = 0;                     // that were evaluated
  std::vector<std::string> differences;  // sentences that name cell and file
};

/// Evaluates best.h5 of every cell that has been trained, in a process of its own, on the splits for
/// which the cell has scores, and compares: of the machine that trained it they are equal, bit for bit.
/// Damaged cells are differences, too. Throws DataError if files cannot be written.
Verification verify(const Grid& grid, const std::filesystem::path& sweep,
                    const VerifyOptions& options);

/// Sentences that name the files of a sweep that do not hold these results, or cannot be read.
std::vector<std::string> changed_results(const Results& recorded,
                                         const std::filesystem::path& directory);

/// What repair_cells() did for a cell.
struct RepairedCell {
  std::string cell;               // its directory
  std::string reason;             // what was damaged
  std::filesystem::path kept_in;  // the folder in the cell with the files set aside
  bool run_kept = false;          // it continues, or is evaluated on the test split again
};

/// Sets the files of damaged cells aside, so that run_sweep() can run them again, with the same bits:
/// test.json and cell.json, if nothing else is damaged, else all. Nothing is deleted. A cell that another
/// process runs is left as it is. Throws DataError if files cannot be moved.
std::vector<RepairedCell> repair_cells(const Grid& grid, const std::filesystem::path& directory);

}  // namespace longhand::train

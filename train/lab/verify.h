// Verify: checks the checkpoints of a sweep, and repairs damaged cells.
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
  std::function<bool()> should_stop = {};  // true ends it after the current cell
};

struct Verification {
  CellStates states;                     // with the scores of the checkpoints
  int64_t cells = 0;                     // cells that were evaluated
  std::vector<std::string> differences;  // sentences naming cell and file
};

/// Evaluates best.h5 of every trained cell, in a separate process, on the splits for which the cell
/// has scores, and compares: on the machine that trained it they are bitwise identical. Damaged
/// cells are differences too. Throws DataError if files cannot be written.
Verification verify(const Grid& grid, const std::filesystem::path& sweep,
                    const VerifyOptions& options);

/// Returns sentences naming the sweep's files that do not match these results or are unreadable.
std::vector<std::string> changed_results(const Results& recorded,
                                         const std::filesystem::path& directory);

/// The result of repair_cells() for a cell.
struct RepairedCell {
  std::string cell;               // its directory
  std::string reason;             // what was damaged
  std::filesystem::path kept_in;  // folder in the cell with the files set aside
  bool run_kept = false;          // it continues, or is only evaluated on the test split again
};

/// Sets the files of damaged cells aside, so that run_sweep() can run them again, bitwise
/// identical: test.json and cell.json if nothing else is damaged, else all files. Deletes nothing.
/// Leaves cells alone that another process runs. Throws DataError if files cannot be moved.
std::vector<RepairedCell> repair_cells(const Grid& grid, const std::filesystem::path& directory);

}  // namespace longhand::train

// Results: the tables of a sweep, from the directories of its cells.
#pragma once

#include <filesystem>
#include <string>

#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// The results of a sweep, finished or not, of kind "ablate": the table "variants" (means over seeds,
/// with 95 % intervals, tests against the baseline, and budgets), the table "search" if there is one,
/// and the table "cells". `command` repeats the sweep. Throws DataError for damaged files.
Results sweep_results(const Grid& grid, const CellStates& states,
                      const std::filesystem::path& directory, const std::string& command);

/// Writes results.json, results.csv (the variants) and cells.csv into the directory of the sweep.
void write_results(const Results& results, const std::filesystem::path& directory);

}  // namespace longhand::train

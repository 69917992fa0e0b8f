// Results: a sweep's tables, from the directories of its cells.
#pragma once

#include <filesystem>
#include <string>

#include "longhand/train/lab/cell.h"
#include "longhand/train/lab/grid.h"
#include "longhand/train/results/table.h"

namespace longhand::train {

/// Returns a sweep's results, finished or not, of kind "ablate": the tables "variants" (means over
/// seeds with 95 % intervals, tests against the baseline, and budgets), "search" if there is one,
/// and "cells". `command` reproduces the sweep. Throws DataError for damaged files.
Results sweep_results(const Grid& grid, const CellStates& states,
                      const std::filesystem::path& directory, const std::string& command);

/// Writes results.json, results.csv (the variants) and cells.csv to the sweep's directory.
void write_results(const Results& results, const std::filesystem::path& directory);

}  // namespace longhand::train

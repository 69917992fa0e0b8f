// Reads recorded runs for a report.
#pragma once

#include <filesystem>
#include <vector>

#include "longhand/train/report/chart.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

/// Calls read_run() for each directory.
std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& paths);

/// Returns up to two curves per run of one quantity against the step: training, thin, and
/// validation. Values that are not finite are omitted.
std::vector<Curve> curves_of(const std::vector<RecordedRun>& runs, double Record::*quantity);

}  // namespace longhand::train

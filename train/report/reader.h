// Recorded runs as the rows and curves of a report.
#pragma once

#include <filesystem>
#include <vector>

#include "longhand/train/report/chart.h"
#include "longhand/train/run/run_record.h"

namespace longhand::train {

/// read_run() of each.
std::vector<RecordedRun> read_runs(const std::vector<std::filesystem::path>& paths);

/// Up to two curves a run of one quantity against the step: training, thin, and validation. Values
/// that are not finite are left out.
std::vector<Curve> curves_of(const std::vector<RecordedRun>& runs, double Record::*quantity);

}  // namespace longhand::train

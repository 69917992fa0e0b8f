// Paired: two sweeps compared variant by variant, over their common seeds.
#pragma once

#include "longhand/train/lab/report/reader.h"

namespace longhand::train {

/// Compares the finished cells of a sweep with those of another that have the same variant, i.e.
/// values of its axes, and the same seed. The table "paired" has a row per such variant: both means
/// over these seeds, the mean difference with its 95 % interval (Student's t), and the p value of
/// the paired t test, corrected for the number of variants (Holm). Throws ConfigError unless both
/// are results of sweeps with the same metric and have a cell in common.
Results paired_results(const ReportedResults& sweep, const ReportedResults& baseline);

/// Returns the results of a sweep in a directory or file among these. Throws ConfigError if none.
const ReportedResults& results_of_sweep(const ReportInputs& inputs,
                                        const std::filesystem::path& path);

}  // namespace longhand::train

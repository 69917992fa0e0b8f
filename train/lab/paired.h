// Paired: two sweeps compared variant by variant, over the seeds that both have.
#pragma once

#include "longhand/train/lab/reader.h"

namespace longhand::train {

/// Compares the finished cells of a sweep with those of another one that have the same variant, which is the
/// values of its axes, and the same seed. The table "paired" has a row for each such variant: the means of
/// both over these seeds, the mean of the differences with its 95 % interval (Student's t), and p of the
/// paired t test, corrected for the number of variants (Holm). Throws ConfigError unless both are results
/// of sweeps with the same metric and have a cell in common.
Results paired_results(const ReportedResults& sweep, const ReportedResults& baseline);

/// The results of a sweep in a directory or file among these. Throws ConfigError if there are none.
const ReportedResults& results_of_sweep(const ReportInputs& inputs,
                                        const std::filesystem::path& path);

}  // namespace longhand::train

// The grid of a drop-in evaluation, from a file and from the command line.
#pragma once

#include <string>
#include <vector>

#include "longhand/train/lab/sweep.h"
#include "longhand/train/run/run_record.h"
#include "longhand/train/transfer/saved_model.h"

namespace longhand::train {

/// Whether "section.name" is an option of attention.
inline bool is_attention(const std::string& key) { return key.starts_with("attention."); }

/// The grid of an evaluation of `run`, whose configuration is the base. `file`, unless empty, has axes,
/// conditions and seeds as a sweep has them; a baseline is ignored. Each of `over` adds an axis:
/// "attention.features=64,256", with values as Config::assign() reads them; "window+linear" names a
/// variant for each layer. Axes multiply, but an option of attention applies only to the variants that
/// declare it. Without seeds in the file, those of the result are empty. Throws ConfigError for an
/// invalid file or axis.
Sweep drop_in_grid(const SavedModel& run, const std::string& file,
                   const std::vector<std::string>& over, const std::vector<std::string>& set = {});

}  // namespace longhand::train

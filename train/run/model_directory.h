// The directory of a model that no training wrote: converted or imported.
#pragma once

#include <filesystem>

#include "longhand/train/checkpoint/checkpoint.h"

namespace longhand::train {

/// Throws ConfigError if a model cannot be written to this path: unless it is an empty folder or does
/// not exist.
void check_model_path(const std::filesystem::path& path);

/// Creates a directory with config.toml, checkpoints/best.h5 and checkpoints/last.h5, from which a
/// model can be evaluated and further trained as a new run. It cannot be resumed, because last.h5
/// has no state of an optimizer. Throws as check_model_path(), and DataError if it cannot be
/// written; nothing remains then.
void write_model(const std::filesystem::path& path, const Checkpoint& checkpoint);

}  // namespace longhand::train

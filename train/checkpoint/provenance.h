// Provenance: what the numbers of this process depend on besides its input.
#pragma once

#include <map>
#include <string>

#include "longhand/train/results/table.h"

namespace longhand::train {

/// "commit" (of the sources, with "-dirty" if they were changed; "unknown" outside of a repository),
/// "compiler", "flags", "cpu" (with its cores) and "libraries" (with their versions).
const std::map<std::string, std::string>& provenance();

/// Adds to results of this process where they are from; `command` repeats them.
void add_origin(Results& results, const std::string& command);

}  // namespace longhand::train

// Provenance: what the results of this process depend on besides its input.
#pragma once

#include <map>
#include <string>

#include "longhand/train/results/table.h"

namespace longhand::train {

/// Returns "commit" (of the sources, with "-dirty" if they were changed; "unknown" outside a
/// repository), "compiler", "flags", "cpu" (with its cores) and "libraries" (with their versions).
const std::map<std::string, std::string>& provenance();

/// Adds the origin of this process's results to them; `command` reproduces them.
void add_origin(Results& results, const std::string& command);

}  // namespace longhand::train

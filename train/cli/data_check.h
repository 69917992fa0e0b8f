// The subcommands of longhand data check.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

/// Adds the group `check` with a command for each format of data.
void add_data_checks(Command& data);

}  // namespace longhand::cli

// The subcommand longhand bench comm.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

/// Adds `comm` to the group bench.
void add_bench_comm(Command& bench);

}  // namespace longhand::cli

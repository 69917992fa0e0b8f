// longhand-mpi bench ranks.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

void add_bench_ranks(Command& bench);

}  // namespace longhand::cli

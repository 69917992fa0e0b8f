// longhand-mpi bench sequence.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

void add_bench_sequence(Command& bench);

}  // namespace longhand::cli

// The subcommands of groups that have files of their own; each function adds them to its group.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

void add_bench_comm(Command& bench);
void add_bench_ranks(Command& bench);
void add_bench_sequence(Command& bench);
void add_checkpoint_diff(Command& checkpoint);
void add_checkpoint_export(Command& checkpoint);
void add_checkpoint_import(Command& checkpoint);
void add_checkpoint_repair(Command& checkpoint);
void add_data_checks(Command& data);

}  // namespace longhand::cli

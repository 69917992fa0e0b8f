// The subcommands of longhand checkpoint that have files of their own.
#pragma once

#include "longhand/train/cli/command.h"

namespace longhand::cli {

void add_checkpoint_diff(Command& group);
void add_checkpoint_export(Command& group);
void add_checkpoint_import(Command& group);
void add_checkpoint_repair(Command& group);

}  // namespace longhand::cli

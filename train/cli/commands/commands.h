// What the files of subcommands include, besides what they are about; and the subcommands of groups that
// have files of their own.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/cli/output/answer.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cli/output/progress.h"
#include "longhand/train/cli/output/results.h"
#include "longhand/train/cost/bench_grid.h"

namespace longhand::cli {

namespace fs = std::filesystem;

// Each adds its command to the group.
void add_analyse_efficiency(Command& analyse);
void add_bench_comm(Command& bench);
void add_bench_decode(Command& bench);
void add_bench_ranks(Command& bench);
void add_bench_sequence(Command& bench);
void add_checkpoint_diff(Command& checkpoint);
void add_checkpoint_export(Command& checkpoint);
void add_checkpoint_import(Command& checkpoint);
void add_checkpoint_repair(Command& checkpoint);
void add_data_checks(Command& data);

/// How many numbers a state holds.
int64_t numbers(const nn::StateDict& state);

/// A cell, and the command line after "longhand" that measures it alone and prints JSON.
struct BenchRun {
  train::BenchCell cell;
  std::vector<std::string> arguments;
};

/// Measures the cells by this program and by that of another build in turns, and prints the ratios of their
/// times. Throws ConfigError if `program` is not a build of longhand.
int bench_against(const Common& common, const std::string& program, int64_t rounds,
                  const std::vector<BenchRun>& runs);

/// What `longhand bench step` or `bench attention` says about a cell that it measures in a process of its
/// own, so that the peak of memory is that of this cell alone. `more` are further flags. Nothing, with the
/// exit code, if that process failed; the reason is then on stderr.
std::optional<Json> bench_in_child(const std::string& what, const train::BenchCell& cell,
                                   int64_t tokens, double seconds,
                                   const std::vector<std::string>& more, int& code);

}  // namespace longhand::cli

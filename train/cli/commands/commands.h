// Common includes of the subcommands' files.
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
#include "longhand/core/parallel.h"
#include "longhand/core/utf8.h"
#include "longhand/data/file.h"
#include "longhand/nn/module.h"
#include "longhand/train/cli/output/answer.h"
#include "longhand/train/cli/output/output.h"
#include "longhand/train/cost/bench_grid.h"

namespace longhand::cli {

namespace fs = std::filesystem;

/// Returns what `longhand bench step` or `bench attention` prints for a cell that it measures in a
/// child process, so that the memory peak is the cell's alone. `more`: further flags. Only the exit
/// code if that process failed or took longer than `most_seconds`; the reason is then on stderr.
std::optional<Json> bench_in_child(const std::string& what, const train::BenchCell& cell,
                                   int64_t tokens, double seconds,
                                   const std::vector<std::string>& more, int& code,
                                   double most_seconds = std::numeric_limits<double>::infinity());

/// Returns the number of elements in a state.
int64_t numbers(const nn::StateDict& state);
/// Returns the dtype and the shape of a tensor.
Json json_of_type(const Tensor& tensor);

}  // namespace longhand::cli

// What the files of subcommands include, besides what they are about.
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

/// What `longhand bench step` or `bench attention` says about a cell that it measures in a process of its
/// own, so that the peak of memory is that of this cell alone. `more` are further flags. Nothing, with the
/// exit code, if that process failed or took longer than `most_seconds`; the reason is then on stderr.
std::optional<Json> bench_in_child(const std::string& what, const train::BenchCell& cell,
                                   int64_t tokens, double seconds,
                                   const std::vector<std::string>& more, int& code,
                                   double most_seconds = std::numeric_limits<double>::infinity());

/// How many numbers a state holds.
int64_t numbers(const nn::StateDict& state);
/// The dtype and the shape of a tensor.
Json json_of_type(const Tensor& tensor);

}  // namespace longhand::cli

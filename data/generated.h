// Tasks whose examples are generated on demand and never stored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "longhand/core/random.h"
#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// Draws an example: sets every token and every target, from the stream alone. Called from several
/// threads at once.
using Draw = std::function<void(RandomStream& random, std::span<int32_t> tokens,
                                std::span<int32_t> targets)>;

/// Returns a task of examples of info.max_length tokens with one target each. Example i of a split
/// depends on (seed, split, i) alone. It is drawn again until the hash of its tokens falls in the
/// split's part of all hashes (training one half, validation and test a quarter each), so that no
/// example is in two splits, however few different ones there are. Throws ConfigError if there are
/// so few that a split has none.
Task make_generated(const TaskInfo& info, const SplitSizes& sizes, uint64_t seed, const Draw& draw);

}  // namespace longhand::data

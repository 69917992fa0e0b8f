// Tasks whose examples are drawn when they are asked for, and never stored.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "longhand/core/random.h"
#include "longhand/data/dataset.h"
#include "longhand/data/split.h"

namespace longhand::data {

/// Draws one example: writes every token and every target, from the stream alone. Called from
/// several threads at once.
using Draw = std::function<void(RandomStream& random, std::span<int32_t> tokens,
                                std::span<int32_t> targets)>;

/// A task of examples of info.max_length tokens with a target each. Example i of a split depends on
/// (seed, split, i) alone. A hash of its tokens must lie in the split's share of all hashes (train
/// a half, validation and test a quarter each), and is drawn again until it does, so that no tokens
/// stand in two splits, however few examples there are to draw from. Throws ConfigError if they are
/// so few that a split has none.
Task make_generated(const TaskInfo& info, const SplitSizes& sizes, uint64_t seed, const Draw& draw);

}  // namespace longhand::data

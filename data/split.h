// Division of examples into training, validation and test sets, which are disjoint.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/core/random.h"

namespace longhand::data {

struct SplitSizes {
  int64_t train, validation, test;
};

/// The options train_size, validation_size and test_size: how many examples to make, 1 or more.
SplitSizes read_sizes(const Options& options, const SplitSizes& otherwise);
/// The same options as limits on what files hold: the first so many of each split, all if 0.
SplitSizes read_limits(const Options& options, const SplitSizes& otherwise = {0, 0, 0});

struct SplitFractions {
  double validation, test;
};

/// The options validation_fraction and test_fraction; the rest, which must not be empty, is for
/// training.
SplitFractions read_fractions(const Options& options, const SplitFractions& otherwise);

/// Returns the indices of the contents for training, validation and testing, in ascending order.
/// The split of a content depends on that content, the set of all contents and the generator, but
/// not on their order; equal contents are in the same split. Each split gets its fraction of the
/// different contents, rounded, and at least one. Throws DataError, naming `source`, for fewer than
/// 3 different contents.
std::array<std::vector<int64_t>, 3> split_by_content(std::span<const std::string_view> contents,
                                                     const SplitFractions& fractions,
                                                     const Generator& generator,
                                                     const std::string& source);

}  // namespace longhand::data

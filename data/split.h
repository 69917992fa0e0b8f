// Division of examples into training, validation and test sets, which are disjoint.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhand/core/random.h"
#include "longhand/core/schema.h"

namespace longhand::data {

/// The largest number of examples of a split. Keeps tensor sizes, and products of a few of them,
/// far from overflow.
constexpr int64_t most_examples = int64_t{1} << 40;

/// The options train_size, validation_size and test_size.
struct SplitSizes {
  int64_t train = 0, validation = 0, test = 0;

  /// Declares them as numbers of examples to generate, at least 1.
  void describe(OptionVisitor& v);
  /// Declares limits for files: the first examples of each split, up to this number (0: all).
  void describe_limits(OptionVisitor& v);
};

/// The options validation_fraction and test_fraction; the rest, which must not be empty, is the
/// training set.
struct SplitFractions {
  double validation = 0.1, test = 0.1;

  void describe(OptionVisitor& v);
};

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

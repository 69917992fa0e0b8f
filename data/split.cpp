#include "longhand/data/split.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::data {
void SplitSizes::describe(OptionVisitor& v) {
  v.integer("train_size", train, {1, most_examples}, "number of training examples");
  v.integer("validation_size", validation, {1, most_examples}, "number of validation examples");
  v.integer("test_size", test, {1, most_examples}, "number of test examples");
}

void SplitSizes::describe_limits(OptionVisitor& v) {
  v.integer("train_size", train, {0, most_examples}, "maximum number of training examples; 0: all");
  v.integer("validation_size", validation, {0, most_examples},
            "maximum number of validation examples; 0: all");
  v.integer("test_size", test, {0, most_examples}, "maximum number of test examples; 0: all");
}

void SplitFractions::describe(OptionVisitor& v) {
  v.number("validation_fraction", validation, {1e-6, 0.999},
           "fraction of the examples used for validation");
  v.number("test_fraction", test, {1e-6, 0.999}, "fraction of the examples used for testing");
  v.require(
      validation + test < 1, "test_fraction",
      concat_message("with validation_fraction = ", validation, " nothing is left for training"));
}

std::array<std::vector<int64_t>, 3> split_by_content(std::span<const std::string_view> contents,
                                                     const SplitFractions& fractions,
                                                     const Generator& generator,
                                                     const std::string& source) {
  // Ordered by a random number that depends on the content, and then by the content itself.
  std::map<std::pair<uint64_t, std::string_view>, std::vector<int64_t>> groups;
  for (size_t i = 0; i < contents.size(); ++i)
    groups[{generator.fork(contents[i]).bits(0), contents[i]}].push_back(static_cast<int64_t>(i));

  const int64_t different = static_cast<int64_t>(groups.size());
  check<DataError>(different >= 3, source, ": holds ", different,
                   " different examples; expected at least 3, to divide them into training, "
                   "validation and test");
  const auto share = [&](double fraction, int64_t left_for_others) {
    const int64_t count = std::llround(fraction * static_cast<double>(different));
    return std::clamp<int64_t>(count, 1, different - left_for_others);
  };
  const int64_t validation = share(fractions.validation, 2);
  const int64_t test = share(fractions.test, validation + 1);

  std::array<std::vector<int64_t>, 3> splits;
  int64_t rank = 0;
  for (const auto& [key, indices] : groups) {
    auto& split = splits[rank < validation ? 1 : rank < validation + test ? 2 : 0];
    split.insert(split.end(), indices.begin(), indices.end());
    ++rank;
  }
  for (auto& split : splits) std::ranges::sort(split);
  return splits;
}

}  // namespace longhand::data

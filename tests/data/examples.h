// Tasks in one line, and their examples as vectors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "longhand/core/parallel.h"
#include "longhand/data/dataset.h"
#include "tests/support/catch.h"

namespace longhand::test {

using Settings = std::vector<std::pair<std::string, OptionValue>>;

inline data::Task make(const std::string& task, const Settings& settings, uint64_t seed = 1) {
  Options options("data");
  options.set("task", task);
  for (const auto& [key, value] : settings) options.set(key, value);
  return data::make_task(options, seed);
}

using Row = std::vector<int32_t>;

struct Example {
  Row tokens, targets;  // a single target is one for the whole sequence
};

inline Example example(const data::Dataset& dataset, int64_t index) {
  const data::Batch batch = dataset.collate(std::vector{index});
  CHECK(!batch.lengths.defined());
  CHECK(batch.tokens.size(1) == dataset.length(index));
  return {batch.tokens.to_vector<int32_t>(), batch.targets.to_vector<int32_t>()};
}

inline std::vector<Example> examples(const data::Dataset& dataset, int64_t count) {
  std::vector<Example> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(example(dataset, i));
  return all;
}

/// Returns hashes of the first examples of the three splits, which must be the same with one thread
/// and with four.
inline std::vector<std::string> hashes(const std::string& task, const Settings& settings,
                                       int64_t limit, uint64_t seed = 1) {
  std::vector<std::vector<std::string>> found;
  const int before = threads();
  for (const int n : {1, 4}) {
    set_threads(n);
    const data::Task made = make(task, settings, seed);
    found.emplace_back();
    for (const char* split : {"train", "validation", "test"})
      found.back().push_back(content_hash(made.split(split), limit));
  }
  set_threads(before);
  CHECK(found[0] == found[1]);
  return found[0];
}

/// Sum of (found - expected)^2 / expected.
inline double chi_square(const std::vector<double>& found, const std::vector<double>& expected) {
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i)
    sum += (found[i] - expected[i]) * (found[i] - expected[i]) / expected[i];
  return sum;
}

}  // namespace longhand::test

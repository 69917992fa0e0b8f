// listops: the value of a nested expression, from its tokens (see data/listops.h).
#include "longhand/data/listops.h"

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/data/lines.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

// Reads a file, whose targets must be right, and keeps the first `limit` expressions (all if 0).
Sequences read(const std::filesystem::path& path, int64_t max_length, int64_t limit = 0) {
  Sequences sequences;
  listops::read_tsv(path, [&](int64_t, std::span<const uint8_t> tokens, int target) {
    check<DataError>(static_cast<int64_t>(tokens.size()) <= max_length, "an expression of ",
                     tokens.size(), " tokens; data.max_length is ", max_length);
    const int value = listops::evaluate(tokens);
    check<DataError>(value == target, "the target is ", target, ", the expression's value ", value);
    if (limit == 0 || sequences.size() < limit) sequences.add(tokens, target);
  });
  check<DataError>(sequences.size() > 0, path.string(), ": holds no example");
  return sequences;
}

std::unique_ptr<Dataset> select(const Sequences& from, const std::vector<int64_t>& indices,
                                int64_t limit) {
  Sequences selected;
  for (const int64_t i : indices)
    if (limit == 0 || selected.size() < limit) selected.add(from.tokens(i), from.target(i));
  return in_memory(std::move(selected));
}

void read_files(Task& task, const Options& options, const std::string& path,
                const SplitSizes& sizes, uint64_t seed, const Splits& splits) {
  if (is_folder(path)) {
    const auto file = [&](const char* name, int64_t limit) {
      return in_memory(read(std::filesystem::path(path) / name, task.info.max_length, limit));
    };
    if (splits.train) task.train = file("basic_train.tsv", sizes.train);
    if (splits.validation) task.validation = file("basic_val.tsv", sizes.validation);
    if (splits.test) task.test = file("basic_test.tsv", sizes.test);
    return;
  }
  const SplitFractions fractions = read_fractions(options, {0.1, 0.1});
  const Sequences all = read(path, task.info.max_length);
  std::vector<std::string_view> contents(all.size());
  for (int64_t i = 0; i < all.size(); ++i) {
    const auto tokens = all.tokens(i);
    contents[i] = {reinterpret_cast<const char*>(tokens.data()), tokens.size()};
  }
  const auto parts = split_by_content(contents, fractions, Generator(seed).fork("split"), path);
  task.train = select(all, parts[0], sizes.train);
  task.validation = select(all, parts[1], sizes.validation);
  task.test = select(all, parts[2], sizes.test);
}

Task make(const Options& options, uint64_t seed, const Splits& splits) {
  constexpr SplitSizes sizes{96000, 2000, 2000};
  listops::Limits limits;
  limits.max_length = options.get_int("max_length", limits.max_length, 2, 1 << 24);
  Task task{{.vocabulary = listops::vocabulary, .classes = 10, .max_length = limits.max_length},
            nullptr,
            nullptr,
            nullptr};
  const std::string path = options.get_string("path", "");
  if (!path.empty()) {
    read_files(task, options, path, read_limits(options, sizes), seed, splits);
    return task;
  }
  const auto [train, validation, test] = read_sizes(options, sizes);
  limits.min_length = options.get_int("min_length", limits.min_length, 0);
  limits.max_depth = options.get_int("max_depth", limits.max_depth, 1, 1000);
  limits.max_args = options.get_int("max_args", limits.max_args, 2, 1000);
  options.require(limits.min_length < limits.max_length - 1, "min_length",
                  concat_message("min_length < length < max_length = ", limits.max_length,
                                 " leaves no length"));
  // validation and test come first, so that they stay the same for any train_size
  const int64_t count = validation + test + (splits.train ? train : 0);
  const auto all = std::make_shared<const Sequences>(
      listops::generate(limits, count, Generator(seed).fork("listops")));
  task.validation = in_memory(all, 0, validation);
  task.test = in_memory(all, validation, validation + test);
  if (splits.train) task.train = in_memory(all, validation + test, count);
  return task;
}

}  // namespace

TaskRegistration register_listops() {
  return {
      "value of nested list operations (Long Range Arena); generated: train_size=96000, "
      "validation_size=2000, test_size=2000, min_length=500, max_length=2000, max_depth=10, "
      "max_args=10; or path: a folder with basic_train.tsv, basic_val.tsv, basic_test.tsv, or one "
      "such file, divided with validation_fraction=0.1, test_fraction=0.1",
      make};
}

}  // namespace longhand::data

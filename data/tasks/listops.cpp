// listops: the value of a nested expression, from its tokens (see data/listops.h).
#include "longhand/data/listops.h"

#include <filesystem>
#include <string>

#include "longhand/data/lines.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

// Reads a file, whose targets must be right, and keeps the first `limit` expressions (all if 0).
Sequences read(const std::filesystem::path& path, int64_t max_length, int64_t limit = 0) {
  Sequences sequences;
  listops::read_tsv(path, [&](int64_t, std::span<const uint8_t> tokens, int target) {
    check<DataError>(static_cast<int64_t>(tokens.size()) <= max_length,
                     "expected at most data.max_length = ", max_length,
                     " tokens, got an expression of ", tokens.size());
    const int value = listops::evaluate(tokens);
    check<DataError>(value == target, "the target is ", target,
                     ", but the value of the expression is ", value);
    if (limit == 0 || sequences.size() < limit) sequences.add(tokens, target);
  });
  check<DataError>(sequences.size() > 0, path.string(),
                   ": expected at least one example, got none");
  return sequences;
}

struct ListopsOptions {
  std::string path;  // empty: generated
  listops::Limits limits;
  SplitSizes sizes{96000, 2000, 2000};
  SplitFractions fractions;

  // A token is a byte, in an array that doubles; each expression's end and value take 12 bytes.
  DataMemory memory() const {
    if (!path.empty()) return {.bytes = bytes_of_files(path)};
    DataMemory out{.examples = static_cast<double>(sizes.train)};
    const double all = out.examples + static_cast<double>(sizes.validation + sizes.test);
    out.bytes =
        all * (0.75 * static_cast<double>(limits.min_length + limits.max_length) + 1.5 * 12);
    return out;
  }

  void describe(OptionVisitor& v) {
    v.text(
        "path", path,
        "a folder with basic_train.tsv, basic_val.tsv and basic_test.tsv, or one such file, which "
        "is split; the sizes limit the number of examples (0: all). none: examples are generated",
        "none");
    if (path.empty())
      sizes.describe(v);
    else
      sizes.describe_limits(v);
    v.when(!path.empty() && !is_folder(path), "path of a file", [&] { fractions.describe(v); });
    v.integer("max_length", limits.max_length, {2, 1 << 24},
              "maximum number of tokens in an expression; exclusive if generated");
    v.when(path.empty(), "no path", [&] {
      v.integer("min_length", limits.min_length, {0},
                "minimum number of tokens in an expression, exclusive");
      v.integer("max_depth", limits.max_depth, {1, 1000}, "maximum nesting depth of an expression");
      v.integer("max_args", limits.max_args, {2, 1000},
                "maximum number of arguments of an operator");
      v.require(limits.min_length < limits.max_length - 1, "min_length",
                concat_message("min_length < length < max_length = ", limits.max_length,
                               " leaves no length"));
    });
  }
};

std::optional<TaskInfo> info_of(const ListopsOptions& o) {
  return TaskInfo{
      .vocabulary = listops::vocabulary, .classes = 10, .max_length = o.limits.max_length};
}

Task read_files(const ListopsOptions& o, uint64_t seed, const Splits& splits) {
  const auto& [path, limits, sizes, fractions] = o;
  Task task{*info_of(o), nullptr, nullptr, nullptr};
  if (!is_folder(path))
    return split_sequences(task.info, read(path, limits.max_length), fractions, seed, path, sizes,
                           splits);
  const auto file = [&, &path = path](const char* name, int64_t limit) {
    return in_memory(read(std::filesystem::path(path) / name, task.info.max_length, limit));
  };
  if (splits.train) task.train = file("basic_train.tsv", sizes.train);
  if (splits.validation) task.validation = file("basic_val.tsv", sizes.validation);
  if (splits.test) task.test = file("basic_test.tsv", sizes.test);
  return task;
}

Task make(const ListopsOptions& o, uint64_t seed, const Splits& splits) {
  if (!o.path.empty()) return read_files(o, seed, splits);
  Task task{*info_of(o), nullptr, nullptr, nullptr};
  const auto [train, validation, test] = o.sizes;
  // validation and test come first, so that they are the same for any train_size
  const int64_t count = validation + test + (splits.train ? train : 0);
  const auto all = std::make_shared<const Sequences>(
      listops::generate(o.limits, count, Generator(seed).fork("listops")));
  task.validation = in_memory(all, 0, validation);
  task.test = in_memory(all, validation, validation + test);
  if (splits.train) task.train = in_memory(all, validation + test, count);
  return task;
}

}  // namespace

TaskSpec register_listops() {
  return make_spec<ListopsOptions>("value of nested list operations (Long Range Arena)", info_of,
                                   make);
}

}  // namespace longhand::data

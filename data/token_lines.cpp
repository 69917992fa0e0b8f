#include "longhand/data/token_lines.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/data/in_memory.h"
#include "longhand/data/lines.h"
#include "longhand/data/record_files.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t most_tokens = int64_t{1} << 24;  // of a sequence

using TokenRows = SequencesOf<int32_t>;

/// Updates the properties that the numbers imply.
void describe(const TokenRows& rows, TaskInfo& info) {
  for (int64_t i = 0; i < rows.size(); ++i) {
    for (const int64_t token : rows.tokens(i))
      info.vocabulary = std::max(info.vocabulary, token + 1);
    if (rows.kind() == TargetKind::classes)
      for (const int64_t target : rows.targets(i))
        info.classes = std::max(info.classes, target + 1);
    info.max_length = std::max(info.max_length, std::ssize(rows.tokens(i)));
  }
}

/// Reads the numbers of a field, separated by blanks, at least one. Calls check(value, word, ok)
/// for each, where ok says whether the word is a T.
template <class T, class Check>
void read_list(const Record& record, size_t field, const char* what, std::vector<T>& out,
               const Check& check) {
  const std::string_view text = record.fields[field].text;
  out.clear();
  for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != text.npos;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    T value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    check(value, word.substr(0, 20), error == std::errc() && stop == word.data() + word.size());
    out.push_back(value);
    record.require(static_cast<int64_t>(out.size()) <= most_tokens, field, "more than ",
                   most_tokens, " numbers");
    at = end;
  }
  record.require(!out.empty(), field, "expected at least one ", what, ", got none");
}

/// Integers, each at least 0, or ignore_index if that is allowed.
void read_integers(const Record& record, size_t field, bool may_ignore, std::vector<int32_t>& out) {
  read_list(record, field, "integer", out, [&](int32_t value, std::string_view word, bool ok) {
    record.require(ok, field, "number ", out.size() + 1, ", '", word,
                   "', is not an integer below 2^31; expected integers",
                   record.fields[field].kind == Record::Kind::text ? " separated by blanks" : "");
    record.require(value >= 0 || (may_ignore && value == ignore_index), field, "number ",
                   out.size() + 1, ", ", value, ", is negative; expected 0 or more",
                   may_ignore ? ", or -100 for a target that is ignored" : "");
  });
}

/// Numbers, or labels, 0 and 1.
void read_numbers(const Record& record, size_t field, TargetKind kind, std::vector<float>& out) {
  read_list(record, field, "number", out, [&](float value, std::string_view word, bool ok) {
    record.require(ok && std::isfinite(value), field, "number ", out.size() + 1, ", '", word,
                   "', is not a finite number; leave out examples without a target");
    record.require(kind != TargetKind::labels || value == 0 || value == 1, field, "number ",
                   out.size() + 1, ", ", word,
                   ", is not a label; with data.targets = \"labels\", expected 0 or 1");
  });
}

RecordOptions options_of(const fs::path& path) {
  return {.format = record_format(path),
          .header = true,
          .choices = {{.name = "tokens", .fixed = true}, {.name = "targets", .fixed = true}}};
}

/// Reads one file of numbers or labels; `width` is their number, 0 if it is not known.
TokenRows read(const fs::path& path, TargetKind kind, int64_t& width) {
  TokenRows rows;
  std::vector<int32_t> tokens;
  std::vector<float> targets;
  for_each_record(path, options_of(path), [&](const Record& record) {
    read_integers(record, 0, false, tokens);
    read_numbers(record, 1, kind, targets);
    if (width == 0) width = std::ssize(targets);
    record.require(std::ssize(targets) == width, 1, targets.size(), " targets; expected ", width,
                   ", as the first record has");
    if (rows.size() == 0) rows = TokenRows(kind, width);
    rows.add(tokens, targets);
  });
  check<DataError>(rows.size() > 0, path.string(), ": expected at least one example, got none");
  return rows;
}

/// Reads one file. `per_token` has been determined by another file, or is set by the first record.
TokenRows read(const fs::path& path, std::optional<bool>& per_token) {
  TokenRows rows;
  std::vector<int32_t> tokens, targets;
  bool any = false;
  for_each_record(path, options_of(path), [&](const Record& record) {
    read_integers(record, 0, false, tokens);
    read_integers(record, 1, true, targets);
    if (!per_token) per_token = targets.size() != 1 || record.fields[1].kind == Record::Kind::list;
    const size_t expected = *per_token ? tokens.size() : 1;
    record.require(targets.size() == expected, 1, targets.size(), " targets for ", tokens.size(),
                   " tokens; expected ", *per_token ? "one for each token" : "one for the sequence",
                   ", as the first record has");
    if (rows.size() == 0) rows = TokenRows(*per_token);
    rows.add(tokens, targets);
    any = any || std::ranges::any_of(targets, [](int32_t t) { return t >= 0; });
  });
  check<DataError>(rows.size() > 0, path.string(), ": expected at least one example, got none");
  check<DataError>(any, path.string(), ": no targets: every one is ", ignore_index);
  return rows;
}

}  // namespace

bool has_token_lines(const fs::path& path) {
  return !path.empty() && format_of_data(path) != RecordFormat::tsv;
}

Task read_token_lines(const fs::path& path, const SplitFractions& fractions, uint64_t seed,
                      const Splits& splits, TargetKind kind) {
  Task task;
  task.info.targets = kind;
  std::optional<bool> per_token;
  const auto load = [&](const fs::path& file) {
    TokenRows rows =
        kind == TargetKind::classes ? read(file, per_token) : read(file, kind, task.info.classes);
    describe(rows, task.info);
    task.info.per_token = rows.per_token();
    return rows;
  };
  if (!is_folder(path)) {
    const TokenRows all = load(path);
    return split_sequences(task.info, all, fractions, seed, path.string(), {}, splits);
  }
  const auto split = [&](const char* name) { return in_memory(load(file_of_split(path, name))); };
  if (splits.train) task.train = split("train");
  if (splits.validation) task.validation = split("validation");
  const bool only_test = !splits.train && !splits.validation;
  if (splits.test && (only_test || !find_split(path, "test").empty())) task.test = split("test");
  return task;
}

}  // namespace longhand::data

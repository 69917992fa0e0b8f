#include "longhand/data/token_lines.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "longhand/core/error.h"
#include "longhand/data/lines.h"
#include "longhand/data/record_files.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t most_tokens = int64_t{1} << 24;  // of a sequence

/// Sequences of tokens with one target, or as many as there are tokens, in memory.
class TokenRows final : public Dataset {
 public:
  explicit TokenRows(bool per_token) : per_token_(per_token) {}

  int64_t size() const override { return static_cast<int64_t>(ends_.size()); }
  int64_t length(int64_t index) const override {
    return static_cast<int64_t>(tokens(index).size());
  }

  std::span<const int32_t> tokens(int64_t index) const {
    check<DataError>(index >= 0 && index < size(), "example ", index,
                     " is out of range for a dataset of ", size(), " examples");
    const int64_t begin = index == 0 ? 0 : ends_[index - 1];
    return {tokens_.data() + begin, static_cast<size_t>(ends_[index] - begin)};
  }
  std::span<const int32_t> targets(int64_t index) const {
    if (!per_token_) return {targets_.data() + index, 1};
    const auto begin = tokens(index).data() - tokens_.data();
    return {targets_.data() + begin, tokens(index).size()};
  }

  void add(std::span<const int32_t> tokens, std::span<const int32_t> targets) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
    targets_.insert(targets_.end(), targets.begin(), targets.end());
    ends_.push_back(static_cast<int64_t>(tokens_.size()));
  }

  /// Updates what the numbers imply.
  void describe(TaskInfo& info) const {
    const auto raise = [](int64_t& to, const std::vector<int32_t>& values) {
      if (!values.empty())
        to = std::max(to, int64_t{*std::max_element(values.begin(), values.end())} + 1);
    };
    raise(info.vocabulary, tokens_);
    raise(info.classes, targets_);
    for (int64_t i = 0; i < size(); ++i) info.max_length = std::max(info.max_length, length(i));
  }

  Batch collate(std::span<const int64_t> indices) const override {
    Batch batch = blank_batch(*this, indices, per_token_);
    const int64_t longest = batch.tokens.size(1);
    for (size_t b = 0; b < indices.size(); ++b) {
      const auto from = tokens(indices[b]), classes = targets(indices[b]);
      std::copy(from.begin(), from.end(), batch.tokens.data<int32_t>() + b * longest);
      std::copy(classes.begin(), classes.end(),
                batch.targets.data<int32_t>() + b * (per_token_ ? longest : 1));
    }
    return batch;
  }

 private:
  bool per_token_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<int64_t> ends_;  // of the tokens of each example
};

/// The integers of a field, separated by blanks, each at least `low` or ignore_index if that is allowed.
void read_integers(const Record& record, size_t field, bool may_ignore, std::vector<int32_t>& out) {
  const std::string_view text = record.fields[field].text;
  out.clear();
  for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != text.npos;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    int32_t value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    record.require(error == std::errc() && stop == word.data() + word.size(), field, "number ",
                   out.size() + 1, ", '", word.substr(0, 20),
                   "', is not an integer below 2^31; expected integers",
                   record.fields[field].kind == Record::Kind::text ? " separated by blanks" : "");
    record.require(value >= 0 || (may_ignore && value == ignore_index), field, "number ",
                   out.size() + 1, ", ", value, ", is negative; expected 0 or more",
                   may_ignore ? ", or -100 for a target that is ignored" : "");
    out.push_back(value);
    record.require(static_cast<int64_t>(out.size()) <= most_tokens, field, "more than ",
                   most_tokens, " numbers");
    at = end;
  }
  record.require(!out.empty(), field, "expected at least one integer, got none");
}

/// Reads one file. `per_token` is what another file has determined, and is set by the first record.
std::unique_ptr<TokenRows> read(const fs::path& path, std::optional<bool>& per_token) {
  const RecordOptions options{.format = record_format(path),
                              .header = true,
                              .choices = {{.name = "tokens"}, {.name = "targets"}}};
  std::unique_ptr<TokenRows> rows;
  std::vector<int32_t> tokens, targets;
  bool any = false;
  for_each_record(path, options, [&](const Record& record) {
    read_integers(record, 0, false, tokens);
    read_integers(record, 1, true, targets);
    if (!per_token) per_token = targets.size() != 1 || record.fields[1].kind == Record::Kind::list;
    const size_t expected = *per_token ? tokens.size() : 1;
    record.require(targets.size() == expected, 1, targets.size(), " targets for ", tokens.size(),
                   " tokens; expected ", *per_token ? "one for each token" : "one for the sequence",
                   ", as the first record has");
    if (!rows) rows = std::make_unique<TokenRows>(*per_token);
    rows->add(tokens, targets);
    any = any || std::any_of(targets.begin(), targets.end(), [](int32_t t) { return t >= 0; });
  });
  check<DataError>(rows != nullptr, path.string(), ": expected at least one example, got none");
  check<DataError>(any, path.string(), ": every target is ", ignore_index,
                   ": there is nothing to learn or to measure");
  return rows;
}

std::unique_ptr<TokenRows> select(const TokenRows& from, const std::vector<int64_t>& indices,
                                  bool per_token) {
  auto out = std::make_unique<TokenRows>(per_token);
  for (const int64_t i : indices) out->add(from.tokens(i), from.targets(i));
  return out;
}

}  // namespace

bool has_token_lines(const fs::path& path) {
  return !path.empty() && format_of_data(path) != RecordFormat::tsv;
}

Task read_token_lines(const fs::path& path, const SplitFractions& fractions, uint64_t seed,
                      const Splits& splits) {
  Task task;
  std::optional<bool> per_token;
  if (is_folder(path)) {
    const auto load = [&](const char* split) {
      auto rows = read(file_of_split(path, split), per_token);
      rows->describe(task.info);
      return rows;
    };
    if (splits.train) task.train = load("train");
    if (splits.validation) task.validation = load("validation");
    const bool only_test = !splits.train && !splits.validation;
    if (splits.test && (only_test || !find_split(path, "test").empty())) task.test = load("test");
  } else {
    const std::unique_ptr<TokenRows> all = read(path, per_token);
    all->describe(task.info);
    std::vector<std::string_view> contents(static_cast<size_t>(all->size()));
    for (int64_t i = 0; i < all->size(); ++i) {
      const auto tokens = all->tokens(i);
      contents[i] = {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
    }
    const auto parts =
        split_by_content(contents, fractions, Generator(seed).fork("split"), path.string());
    task.train = select(*all, parts[0], *per_token);
    task.validation = select(*all, parts[1], *per_token);
    task.test = select(*all, parts[2], *per_token);
  }
  task.info.per_token = per_token.value_or(false);
  return task;
}

}  // namespace longhand::data

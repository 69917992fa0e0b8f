// text_classification: a label for the bytes of a line.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "longhand/data/in_memory.h"
#include "longhand/data/lines.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

struct Line {
  std::string label, text;
  int64_t number;
};

struct Columns {
  int64_t label, text;
  bool header;
};

// All lines must have the same number of columns, so that a tab in a text is detected.
std::vector<Line> read(const fs::path& path, const Columns& columns) {
  std::vector<Line> lines;
  size_t count = 0;
  for_each_line(path, [&](int64_t number, std::string_view line) {
    const auto parts = split_columns(line);
    if (number == 1) count = parts.size();
    check<DataError>(parts.size() == count, parts.size(), " columns, line 1 has ", count);
    check<DataError>(static_cast<int64_t>(count) > std::max(columns.label, columns.text), count,
                     " columns separated by tabs; expected the label in column ", columns.label,
                     " and the text in column ", columns.text, ", counted from 0");
    if (number == 1 && columns.header) return;
    const std::string_view label = parts[columns.label], text = parts[columns.text];
    check<DataError>(!label.empty(), "the label is empty");
    check<DataError>(!text.empty(), "the text is empty");
    lines.push_back({std::string(label), std::string(text), number});
  });
  check<DataError>(!lines.empty(), path.string(), ": expected at least one example, got none");
  return lines;
}

bool as_integer(const std::string& text, int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

// The labels and their classes 0, 1, 2 …, in numerical order if all are integers, else in byte order.
using Classes = std::map<std::string, int32_t>;
Classes classes_of(const std::vector<Line>& lines, const std::string& path) {
  Classes classes;
  for (const Line& line : lines) classes[line.label] = 0;
  check<DataError>(classes.size() > 1, path, ": every line has the label '", lines[0].label,
                   "'; expected at least two labels");
  std::vector<std::pair<int64_t, std::string>> order;
  bool integers = true;
  for (const auto& [label, unused] : classes) {
    int64_t value = 0;
    integers &= as_integer(label, value);
    order.emplace_back(value, label);
  }
  if (integers) std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) classes[order[i].second] = static_cast<int32_t>(i);
  return classes;
}

void add(Sequences& sequences, const Line& line, const Classes& classes, int64_t max_length) {
  const auto found = classes.find(line.label);
  check<DataError>(found != classes.end(), "the label '", line.label,
                   "' does not occur in the training examples");
  const size_t n = std::min(line.text.size(), static_cast<size_t>(max_length));
  sequences.add({reinterpret_cast<const uint8_t*>(line.text.data()), n}, found->second);
}

// The file of a split in a folder, by one of its names.
fs::path find(const fs::path& folder, const std::vector<std::string>& names) {
  std::error_code ignored;
  for (const std::string& name : names)
    if (fs::exists(folder / name, ignored)) return folder / name;
  throw DataError(concat_message(folder.string(), ": has no ", names[0]));
}

struct LabelledTextOptions {
  std::string path;
  int64_t max_length = 1024;
  Columns columns{0, 1, false};
  SplitFractions fractions;
  SplitSizes limits;

  void cut_to(int64_t length) { max_length = length; }

  void describe(OptionVisitor& v) {
    v.text("path", path,
           "a TSV file, which is split, or a folder with train.tsv, validation.tsv and test.tsv",
           "none: must be given");
    v.require(!path.empty(), "path",
              "text_classification reads lines of a label, a tab and a text: name a file, or a "
              "folder with train.tsv, validation.tsv and test.tsv, with data.path");
    v.integer("max_length", max_length, {1, 1 << 24},
              "maximum length of a text in bytes; longer texts are truncated",
              "model.max_length if that is given, else 1024");
    v.integer("label_column", columns.label, {0, 1000}, "column of the label, counted from 0");
    v.integer("text_column", columns.text, {0, 1000}, "column of the text, counted from 0");
    v.require(columns.label != columns.text, "text_column",
              "expected another column than label_column");
    v.boolean("header", columns.header, "whether the first line is a header with column names");
    v.when(path.empty() || !is_folder(path), "path of a file", [&] { fractions.describe(v); });
    limits.describe_limits(v);
  }
};

// The number of classes is the number of labels.
std::optional<TaskInfo> info_of(const LabelledTextOptions&) { return std::nullopt; }

Task make(const LabelledTextOptions& o, uint64_t seed, const Splits&) {
  const auto& [path, max_length, columns, fractions, limits] = o;
  Classes classes;
  std::array<Sequences, 3> splits;
  const std::array<int64_t, 3> most = {limits.train, limits.validation, limits.test};
  const auto full = [&](int split) {
    return most[split] != 0 && splits[split].size() == most[split];
  };
  if (is_folder(path)) {
    const std::array<fs::path, 3> files = {
        find(path, {"train.tsv"}),
        find(path, {"validation.tsv", "val.tsv", "dev.tsv"}),
        find(path, {"test.tsv"}),
    };
    for (int split = 0; split < 3; ++split) {
      const std::vector<Line> lines = read(files[split], columns);
      if (split == 0) classes = classes_of(lines, files[split].string());
      for (const Line& line : lines) {
        if (full(split)) break;
        try {
          add(splits[split], line, classes, max_length);
        } catch (const DataError& error) {
          throw DataError(
              concat_message(files[split].string(), ":", line.number, ": ", error.what()));
        }
      }
    }
  } else {
    const std::vector<Line> lines = read(path, columns);
    classes = classes_of(lines, path);
    std::vector<std::string_view> contents(lines.size());
    for (size_t i = 0; i < lines.size(); ++i)
      contents[i] = std::string_view(lines[i].text).substr(0, max_length);
    const auto indices = split_by_content(contents, fractions, Generator(seed).fork("split"), path);
    for (int split = 0; split < 3; ++split) {
      for (const int64_t i : indices[split]) {
        if (full(split)) break;
        add(splits[split], lines[i], classes, max_length);
      }
    }
  }
  const TaskInfo info{
      .vocabulary = 256, .classes = static_cast<int64_t>(classes.size()), .max_length = max_length};
  return {info, in_memory(std::move(splits[0])), in_memory(std::move(splits[1])),
          in_memory(std::move(splits[2]))};
}

}  // namespace

TaskSpec register_text_classification() {
  return make_spec<LabelledTextOptions>("the label of a line of text, read as bytes", info_of,
                                        make);
}

}  // namespace longhand::data

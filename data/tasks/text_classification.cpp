// text_classification: a label for a text, of records of TSV, CSV or JSON Lines.
#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/core/options.h"
#include "longhand/data/in_memory.h"
#include "longhand/data/lines.h"
#include "longhand/data/record_files.h"
#include "longhand/data/records.h"
#include "longhand/data/registry.h"
#include "longhand/data/split.h"

namespace longhand::data {
namespace {

namespace fs = std::filesystem;

struct Example {
  std::string label, text;
  int64_t line, column;  // of the label
};

bool is_one_of(const std::string& word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, lower_case(word)) != words.end();
}

bool names_label(const std::string& word) {
  return is_one_of(word, {"label", "labels", "class", "target", "category", "sentiment", "rating",
                          "score", "y"});
}

bool names_text(const std::string& word) {
  return is_one_of(word, {"text", "texts", "sentence", "review", "content", "document", "comment",
                          "message", "title", "x"});
}

// A first line is an undeclared header if no other line has its label, and if it is named like a
// column or its label is the only one that is not an integer.
void check_no_header(const std::vector<Example>& examples, const std::string& file) {
  const Example& first = examples.front();
  bool integers = true;
  for (size_t i = 1; i < examples.size(); ++i) {
    if (examples[i].label == first.label) return;
    integers = integers && parse_number<int64_t>(examples[i].label);
  }
  const bool named = names_label(first.label) || names_text(first.text);
  const bool other_kind = examples.size() > 1 && integers && !parse_number<int64_t>(first.label);
  check<DataError>(!named && !other_kind, file, ":", first.line, ":", first.column,
                   ": this line looks like a header: no other one has the label '",
                   first.label.substr(0, 40),
                   "'; set data.header = true, or, if it is an example, move it down");
}

// A header with a label that examples have is an example. One that names the columns in reverse
// order shows that the default columns are wrong.
void check_header(const Record& header, const std::vector<Example>& examples, bool by_name) {
  if (header.fields.empty()) return;
  const std::string &label = header.fields[0].text, &text = header.fields[1].text;
  header.require(by_name || (!names_text(label) && !names_label(text)), 0,
                 "the column of the label is named '", label.substr(0, 40), "', that of the text '",
                 text.substr(0, 40),
                 "'; choose them with data.label_name and data.text_name, or by number with "
                 "data.label_column and data.text_column");
  const auto same =
      std::ranges::count_if(examples, [&](const Example& e) { return e.label == label; });
  header.require(same == 0, 0, "this line looks like an example, not like a header: ", same,
                 " others have the label '", label.substr(0, 40), "'; set data.header = false");
}

std::vector<Example> read(const fs::path& path, const RecordOptions& options) {
  std::vector<Example> examples;
  const Record header = for_each_record(path, options, [&](const Record& record) {
    const Record::Field &label = record.fields[0], &text = record.fields[1];
    record.require(!label.text.empty(), 0, "the label is empty");
    record.require(label.kind != Record::Kind::list, 0, "expected text or a number, got a list");
    record.require(!text.text.empty(), 1, "the text is empty");
    record.require(text.kind == Record::Kind::text, 1, "expected text in quotes");
    examples.push_back({label.text, text.text, label.line, label.column});
  });
  check<DataError>(!examples.empty(), path.string(), ": expected at least one example, got none");
  check_header(header, examples, !options.choices[0].name.empty());
  if (!options.header && options.format != RecordFormat::jsonl)
    check_no_header(examples, path.string());
  return examples;
}

// The labels and their classes 0, 1, …, in numerical order if all are integers, else in byte order.
using Classes = std::map<std::string, int32_t>;
Classes classes_of(const std::vector<Example>& lines, const std::string& path,
                   const std::vector<std::string>& labels) {
  Classes classes;
  for (const std::string& label : labels) classes[label] = static_cast<int32_t>(classes.size());
  if (!classes.empty()) return classes;
  for (const Example& line : lines) classes[line.label] = 0;
  check<DataError>(
      classes.size() > 1, path, ": every line has the label '", lines[0].label,
      "'; expected at least two labels, or all labels in the order of their classes in "
      "data.labels");
  std::vector<std::pair<int64_t, std::string>> order;
  bool integers = true;
  for (const auto& [label, unused] : classes) {
    const auto value = parse_number<int64_t>(label);
    integers &= value.has_value();
    order.emplace_back(value.value_or(0), label);
  }
  if (integers) std::ranges::sort(order);
  for (size_t i = 0; i < order.size(); ++i) classes[order[i].second] = static_cast<int32_t>(i);
  return classes;
}

void add(Sequences& sequences, const Example& line, const Classes& classes, int64_t max_length,
         const std::string& file) {
  const auto found = classes.find(line.label);
  check<DataError>(found != classes.end(), file, ":", line.line, ":", line.column, ": the label '",
                   line.label, "' does not occur in the training examples or in data.labels");
  const size_t n = std::min(line.text.size(), static_cast<size_t>(max_length));
  sequences.add({reinterpret_cast<const uint8_t*>(line.text.data()), n}, found->second);
}

struct LabelledTextOptions {
  std::string path;
  int64_t max_length = 1024;
  std::string label_name, text_name, labels;
  int64_t label_column = 0, text_column = 1;
  bool header = false;
  SplitFractions fractions;
  SplitSizes limits;

  void cut_to(int64_t length) { max_length = length; }
  RecordFormat format() const { return format_of_data(path); }

  void describe(OptionVisitor& v) {
    v.text("path", path,
           "a file, which is split, or a folder with the files train, validation and test: of the "
           "extension .tsv, .csv or .jsonl",
           "none: must be given");
    v.require(
        !path.empty(), "path",
        "text_classification reads labels and texts: name a TSV, CSV or JSON Lines file, or a "
        "folder with train.tsv, validation.tsv and test.tsv, with data.path");
    v.integer("max_length", max_length, {1, 1 << 24},
              "maximum length of a text in bytes; longer texts are truncated",
              "model.max_length if that is given, else 1024");
    const bool is_json = format() == RecordFormat::jsonl;
    if (is_json) label_name = "label", text_name = "text";
    v.text("label_name", label_name,
           "name of the label: its column in the header line, or its key in JSON Lines",
           "label in JSON Lines; else none: label_column");
    v.text("text_name", text_name, "name of the text: its column, or its key in JSON Lines",
           "text in JSON Lines; else none: text_column");
    v.text("labels", labels, "the labels in the order of their classes, separated by commas",
           "those of the training examples: in numerical order if all are integers, else in byte "
           "order");
    v.when(!is_json, "path of TSV or CSV", [&] {
      v.integer("label_column", label_column, {0, 1000}, "column of the label, counted from 0");
      v.integer("text_column", text_column, {0, 1000}, "column of the text, counted from 0");
      v.require(label_column != text_column || !label_name.empty() || !text_name.empty(),
                "text_column", "expected another column than label_column");
      header = format() == RecordFormat::csv;
      v.boolean("header", header, "whether the first line is a header with column names",
                "true for CSV, else false");
      v.require(header || label_name.empty(), "label_name",
                "a name is one of the header line: set data.header = true");
      v.require(header || text_name.empty(), "text_name",
                "a name is one of the header line: set data.header = true");
    });
    v.require(!is_json || (!label_name.empty() && !text_name.empty()), "label_name",
              "expected the keys of label and text in JSON Lines");
    v.require(label_name.empty() || label_name != text_name, "text_name",
              "expected another name than label_name");
    v.when(path.empty() || !is_folder(path), "path of a file", [&] { fractions.describe(v); });
    limits.describe_limits(v);
  }

  RecordOptions records() const {
    return {.format = format(),
            .header = header,
            .choices = {{label_name, label_column}, {text_name, text_column}}};
  }
};

Task make(const LabelledTextOptions& o, uint64_t seed, const Splits& used) {
  const std::string& path = o.path;
  const bool folder = is_folder(path);
  std::vector<fs::path> files{path};
  if (folder)
    files = {file_of_split(path, "train"), file_of_split(path, "validation"),
             file_of_split(path, "test")};
  const std::array<int64_t, 3> most = {o.limits.train, o.limits.validation, o.limits.test};
  Classes classes;
  std::array<Sequences, 3> splits;  // if it is a file, all of it in the first one
  for (size_t split = 0; split < files.size(); ++split) {
    const std::vector<Example> examples = read(files[split], o.records());
    if (split == 0) classes = classes_of(examples, files[split].string(), split_at(o.labels, ','));
    for (const Example& example : examples) {
      if (folder && most[split] != 0 && splits[split].size() == most[split]) break;
      add(splits[split], example, classes, o.max_length, files[split].string());
    }
  }
  TaskInfo info{.vocabulary = 256,
                .classes = static_cast<int64_t>(classes.size()),
                .bytes = true,
                .max_length = o.max_length,
                .labels = std::vector<std::string>(classes.size())};
  for (const auto& [label, index] : classes) info.labels[index] = label;
  if (!folder) return split_sequences(info, splits[0], o.fractions, seed, path, o.limits, used);
  return {info, in_memory(std::move(splits[0])), in_memory(std::move(splits[1])),
          in_memory(std::move(splits[2]))};
}

}  // namespace

TaskSpec register_text_classification() {
  return make_spec<LabelledTextOptions>("the label of a text, read as bytes", nullptr,
                                        make);  // the number of classes is the number of labels
}

}  // namespace longhand::data

#include "longhand/data/records.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "longhand/data/lines.h"
#include "longhand/data/names.h"

namespace longhand::data {
namespace {

constexpr size_t most_columns = 10000;

template <class... Parts>
[[noreturn]] void refuse(const std::string& file, int64_t line, int64_t column,
                         const Parts&... parts) {
  throw DataError(concat_message(file, ":", line, ":", column, ": ", parts...));
}

// ---- CSV and TSV --------------------------------------------------------------------------------

/// Reads rows. A quoted field of CSV may span several lines.
class RowReader {
 public:
  RowReader(const std::filesystem::path& path, RecordFormat format)
      : file_(path.string()), lines_(path), quotes_(format == RecordFormat::csv) {}

  /// Reads the next row; false after the last one.
  bool next(std::vector<Record::Field>& row) {
    row.clear();
    if (!lines_.next(rest_)) return false;
    column_ = 1;
    bytes_ = rest_.size();
    for (bool more = true; more;) {
      Record::Field field{.line = lines_.number(), .column = column_};
      more = quotes_ && rest_.starts_with('"') ? quoted(field) : plain(field);
      row.push_back(std::move(field));
      if (row.size() > most_columns)
        refuse(file_, lines_.number(), column_, "more than ", most_columns, " columns");
    }
    return true;
  }

 private:
  void take(size_t count) {
    rest_.remove_prefix(count);
    column_ += static_cast<int64_t>(count);
  }

  // Both return whether another field follows in this row.

  bool plain(Record::Field& field) {
    const size_t end = std::min(rest_.find(quotes_ ? ',' : '\t'), rest_.size());
    field.text = rest_.substr(0, end);
    if (quotes_) {
      const size_t bad = field.text.find_first_of("\"\r");
      if (bad != std::string::npos)
        refuse(file_, lines_.number(), column_ + static_cast<int64_t>(bad),
               field.text[bad] == '"'
                   ? "a quote inside of a field without quotes; enclose the field in quotes, and "
                     "write the quote twice"
                   : "a carriage return without a line feed; enclose the field in quotes if it is "
                     "text");
    }
    return separator(end);
  }

  bool quoted(Record::Field& field) {
    take(1);
    for (;;) {
      const size_t end = std::min(rest_.find('"'), rest_.size());
      field.text.append(rest_.substr(0, end));
      if (end == rest_.size()) {  // the field continues on the next line
        field.text.append(lines_.ended_with_cr() ? "\r\n" : "\n");
        if (!lines_.next(rest_))
          refuse(file_, field.line, field.column, "the quote that opens this field is not closed");
        column_ = 1;
        bytes_ += rest_.size();
        if (bytes_ > most_line_bytes)
          refuse(file_, field.line, field.column, "a record of more than ", most_line_bytes,
                 " bytes; is the quote that opens this field closed?");
        continue;
      }
      take(end + 1);
      if (!rest_.starts_with('"')) break;
      field.text.push_back('"');
      take(1);
    }
    if (!rest_.empty() && rest_.front() != ',')
      refuse(file_, lines_.number(), column_,
             "expected a comma or the end of the line after a closing quote; a quote inside of a "
             "field is written twice");
    return separator(0);
  }

  /// Consumes `before` bytes and the separator after them, if there is one.
  bool separator(size_t before) {
    const bool more = before < rest_.size();
    take(before + (more ? 1 : 0));
    return more;
  }

  std::string file_;
  LineReader lines_;
  bool quotes_;
  std::string_view rest_;  // of the current line
  int64_t column_ = 1;
  size_t bytes_ = 0;  // of the record
};

/// Returns the column of each choice, in a file with these column names.
std::vector<size_t> columns_of(const RecordOptions& options, const std::vector<std::string>& names,
                               const std::string& file) {
  std::vector<size_t> columns;
  for (const FieldChoice& choice : options.choices) {
    if (choice.name.empty()) {
      columns.push_back(static_cast<size_t>(choice.column));
      continue;
    }
    const auto found = std::ranges::find(names, choice.name);
    check<DataError>(found != names.end(), file, ":1: the header line has no column \"",
                     choice.name, "\"", found_instead(choice.name, names, choice.fixed));
    check<DataError>(std::find(found + 1, names.end(), choice.name) == names.end(), file,
                     ":1: the header line has two columns \"", choice.name, "\"");
    columns.push_back(static_cast<size_t>(found - names.begin()));
  }
  return columns;
}

Record read_rows(const std::filesystem::path& path, const RecordOptions& options,
                 const std::function<void(const Record& record)>& visit) {
  const bool csv = options.format == RecordFormat::csv;
  RowReader reader(path, options.format);
  Record record{path.string(), {}}, header;
  std::vector<Record::Field> row;
  std::vector<size_t> columns;
  size_t width = 0;
  for (bool first = true; reader.next(row); first = false) {
    if (first) {
      std::vector<std::string> names;
      if (options.header)
        for (const Record::Field& field : row) names.push_back(field.text);
      columns = columns_of(options, names, record.file);
      width = row.size();
      for (const size_t column : columns)
        check<DataError>(column < width, record.file, ":1: ", width, " columns separated by ",
                         csv ? "commas" : "tabs", ", expected a column ", column,
                         ", counted from 0; .csv files have commas, all others tabs");
    }
    check<DataError>(row.size() == width, record.file, ":", row.front().line, ": ", row.size(),
                     " columns, line 1 has ", width,
                     csv ? "; fields with commas are enclosed in quotes" : "");
    record.fields.clear();
    for (const size_t column : columns) record.fields.push_back(row[column]);
    if (first && options.header)
      header = record;
    else
      visit(record);
  }
  return header;
}

// ---- JSON Lines ---------------------------------------------------------------------------------

/// Reads one object without building it: only the values of the named fields take memory.
class ObjectReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  ObjectReader(std::string_view line, int64_t number, const RecordOptions& options, Record& record)
      : begin_(line.data()), number_(number), options_(options), record_(record) {
    record.fields.assign(options.choices.size(), {});
    reached_ = begin_;
    const char* const end = begin_ + line.size();
    nlohmann::json::sax_parse(Counted{begin_, &reached_}, Counted{end, &reached_}, this);
    for (size_t i = 0; i < options.choices.size(); ++i)
      if (record.fields[i].line == 0)
        refuse(record.file, number, 1, "the object has no \"", options.choices[i].name, "\"",
               found_instead(options.choices[i].name, keys_, options.choices[i].fixed));
  }

  bool null() override { return scalar(Record::Kind::text, "null", false); }
  bool boolean(bool value) override {
    return scalar(Record::Kind::truth, value ? "true" : "false", true);
  }
  bool number_integer(number_integer_t value) override { return in_list(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return in_list(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return in_list(text); }
  bool string(string_t& value) override { return scalar(Record::Kind::text, value, true); }
  bool binary(binary_t&) override { return false; }  // does not occur in text

  bool start_object(size_t) override {
    if (field_ && depth_ > 0) fail("expected text, a number or a list of numbers, got an object");
    return enter();
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    constexpr size_t most_keys = 1000;  // some of which a message lists
    if (keys_.size() < most_keys) keys_.push_back(name.substr(0, 100));
    field_ = nullptr;
    for (size_t i = 0; i < options_.choices.size(); ++i)
      if (options_.choices[i].name == name) field_ = &record_.fields[i];
    if (!field_) return true;
    if (field_->line > 0) fail("the key \"" + name + "\" occurs twice");
    field_->line = number_;
    // The place of the opening quote, if no character of the key is escaped.
    field_->column = std::max<int64_t>(1, column() - static_cast<int64_t>(name.size()) - 1);
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override {
    if (depth_ == 0) fail("expected an object, got a list");
    if (field_) {
      if (depth_ > 1) fail("expected a list of numbers, got a list in a list");
      field_->kind = Record::Kind::list;
    }
    return enter();
  }
  bool end_array() override { return leave(); }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ..."
    std::string_view what = error.what();
    if (const size_t id = what.find("] "); id != what.npos) what.remove_prefix(id + 2);
    if (what.starts_with("parse error at "))
      if (const size_t place = what.find(": "); place != what.npos) what.remove_prefix(place + 2);
    fail("not JSON: " + std::string(what.substr(0, 300)));
  }

 private:
  /// A position in the text, which stores how far the parser has read.
  struct Counted {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;

    const char* at;
    const char** reached;

    reference operator*() const { return *at; }
    Counted& operator++() {
      *reached = ++at;
      return *this;
    }
    Counted operator++(int) {
      const Counted before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Counted& other) const { return at == other.at; }
  };

  /// The column of the last character read, from 1.
  int64_t column() const { return std::max<int64_t>(1, reached_ - begin_); }

  [[noreturn]] void fail(const std::string& message) const {
    refuse(record_.file, number_, column(), message);
  }

  bool scalar(Record::Kind kind, const std::string& text, bool accepted) {
    if (depth_ == 0) fail("expected an object, got " + text.substr(0, 20));
    if (!field_) return true;
    if (depth_ > 1 || !accepted)
      fail(concat_message("expected ",
                          depth_ > 1 ? "numbers" : "text, a number or a list of numbers", ", got ",
                          text.substr(0, 20)));
    field_->kind = kind;
    field_->text = text;
    return true;
  }

  bool in_list(const std::string& text) {
    if (depth_ != 2 || !field_) return scalar(Record::Kind::number, text, true);
    if (!field_->text.empty()) field_->text.push_back(' ');
    field_->text += text;
    return true;
  }

  bool enter() {
    constexpr int64_t deepest = 64;
    if (++depth_ > deepest) fail("values are nested too deeply");
    return true;
  }
  bool leave() {
    if (--depth_ == 1) field_ = nullptr;
    return true;
  }

  const char* begin_;
  const char* reached_ = nullptr;
  int64_t number_;
  const RecordOptions& options_;
  Record& record_;
  int64_t depth_ = 0;
  Record::Field* field_ = nullptr;  // the field of the value that follows; null: none
  std::vector<std::string> keys_;
};

}  // namespace

RecordFormat record_format(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".csv") return RecordFormat::csv;
  const bool json = extension == ".jsonl" || extension == ".ndjson" || extension == ".json";
  return json ? RecordFormat::jsonl : RecordFormat::tsv;
}

Record for_each_record(const std::filesystem::path& path, const RecordOptions& options,
                       const std::function<void(const Record& record)>& visit) {
  if (options.format != RecordFormat::jsonl) return read_rows(path, options, visit);
  LineReader reader(path);
  Record record{path.string(), {}};
  for (std::string_view line; reader.next(line);) {
    ObjectReader(line, reader.number(), options, record);
    visit(record);
  }
  return {};
}

}  // namespace longhand::data

// What a command answers, described once: an Answer, named fields in the order of its JSON and text that names them;
// or Results, whose tables are printed and written.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/train/cli/common.h"
#include "longhand/train/results/codec.h"
#include "longhand/train/results/table.h"

namespace longhand::cli {

/// With --json, the fields are printed at the end, as one object; otherwise the text, as it comes.
class Answer {
 public:
  explicit Answer(bool json) : json_(json) {}

  /// A field, of any type that codec.h writes. Empty optionals are left out.
  template <class T>
  Answer& add(const std::string& name, const T& value) {
    fields_[name] = train::json_of(value);
    return *this;
  }
  template <class T>
  Answer& add(const std::string& name, const std::optional<T>& value) {
    return value ? add(name, *value) : *this;
  }
  /// All fields of a struct.
  template <train::HasFields T>
  Answer& add(const T& value) {
    fields_.update(train::json_of(value));
    return *this;
  }

  /// Text, with fields in braces and the formats of fmt: "{step}", "{loss:.6f}"; also "{tokens:,}", which
  /// separates thousands, and "{bytes:MiB}".
  Answer& text(std::string_view format) { return text(format, fields_); }
  /// The same with the fields of another object, or with "{}" for a value that is none.
  Answer& text(std::string_view format, const Json& fields);
  /// Text without fields, and text that fmt makes of values.
  Answer& literal(std::string_view text);
  template <class... T>
  Answer& print(fmt::format_string<T...> format, T&&... values) {
    return literal(fmt::format(format, std::forward<T>(values)...));
  }
  /// text() for each value of a list.
  Answer& each(const std::string& list, std::string_view format);
  /// A table, only in the text.
  Answer& table(const train::Table& table);

  /// Prints the JSON and returns the code.
  int end(int code = success) const;

 private:
  bool json_;
  Json fields_ = Json::object();
};

/// JSON of a list, of which make(value) makes each value.
template <class List, class F>
Json list_of(const List& list, F make) {
  Json out = Json::array();
  for (const auto& each : list) out.push_back(make(each));
  return out;
}

/// Prints the result of a command with --json: one object, of `result` and of what every result says
/// about itself: "kind" (the command, such as "bench step"), "command" (that repeats it), "machine",
/// "date" and "version" (of Longhand), as in train::Results. Bytes that are not valid UTF-8 are replaced.
void print_json(const Json& result);

/// Adds to results of the chosen command where they are from, and returns their JSON.
std::string json_of_results(train::Results& results);

/// The table of results that a command prints with --table, else as text. Caption and label follow from the
/// titles unless they are given.
std::string printed_table(const Common& arguments, const train::Results& results,
                          const train::Table& table, const train::Table& readable);

/// How finish() prints tables.
struct Shown {
  std::vector<std::string> hidden{};  // tables that are only written
  /// What readers see of a table; by default, with_intervals() of all of it.
  std::function<train::Table(const train::Table&)> readable = train::with_intervals;
};

/// Adds to results where they are from, prints them (as text, as JSON with --json, or only the first table
/// with --table), and writes them to --out. Returns the exit code.
int finish(const Common& arguments, train::Results results, const Shown& shown = {});

}  // namespace longhand::cli

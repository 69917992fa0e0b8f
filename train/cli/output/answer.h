// The output of a command, described once: an Answer, with named fields in the order of its JSON
// and text that refers to them; or Results, whose tables are printed and written.
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

/// With --json, prints the fields at the end as one object; otherwise prints the text as it comes.
class Answer {
 public:
  explicit Answer(bool json) : json_(json) {}

  /// Adds a field of any type that codec.h writes. Empty optionals are omitted.
  template <class T>
  Answer& add(const std::string& name, const T& value) {
    fields_[name] = train::json_of(value);
    return *this;
  }
  template <class T>
  Answer& add(const std::string& name, const std::optional<T>& value) {
    return value ? add(name, *value) : *this;
  }
  /// Adds all fields of a struct.
  template <train::HasFields T>
  Answer& add(const T& value) {
    fields_.update(train::json_of(value));
    return *this;
  }

  /// Adds text with fields in braces and fmt's formats: "{step}", "{loss:.6f}"; also "{tokens:,}",
  /// which separates thousands, and "{bytes:MiB}".
  Answer& text(std::string_view format) { return text(format, fields_); }
  /// Likewise with the fields of another object, or with "{}" for a value that is not an object.
  Answer& text(std::string_view format, const Json& fields);
  /// Adds text without fields, or text that fmt makes from values.
  Answer& literal(std::string_view text);
  template <class... T>
  Answer& print(fmt::format_string<T...> format, T&&... values) {
    return literal(fmt::format(format, std::forward<T>(values)...));
  }
  /// Calls text() for each value of a list.
  Answer& each(const std::string& list, std::string_view format);
  /// Adds a table, only to the text.
  Answer& table(const train::Table& table);

  /// Prints the JSON and returns the code.
  int end(int code = success) const;

 private:
  bool json_;
  Json fields_ = Json::object();
};

/// Returns a list as JSON, with make(value) for each value.
template <class List, class F>
Json list_of(const List& list, F make) {
  Json out = Json::array();
  for (const auto& each : list) out.push_back(make(each));
  return out;
}

/// Prints a command's result with --json: one object, with `result` and the fields of every result:
/// "kind" (the command, such as "bench step"), "command" (that repeats it), "machine", "date" and
/// "version" (of Longhand), as in train::Results. Bytes that are not valid UTF-8 are replaced.
void print_json(const Json& result);

/// Adds the origin of the chosen command's results to them, and returns their JSON.
std::string json_of_results(train::Results& results);

/// Returns the table of results that a command prints with --table, else text. Caption and label
/// derive from the titles unless given.
std::string printed_table(const Common& arguments, const train::Results& results,
                          const train::Table& table, const train::Table& readable);

/// How finish() prints tables.
struct Shown {
  std::vector<std::string> hidden{};  // tables that are written but not printed
  /// The table as readers see it; by default, with_intervals() of all of it.
  std::function<train::Table(const train::Table&)> readable = train::with_intervals;
};

/// Adds the origin of results, prints them (as text, as JSON with --json, or only the first table
/// with --table), and writes them to --out. Returns the exit code.
int finish(const Common& arguments, train::Results results, const Shown& shown = {});

}  // namespace longhand::cli

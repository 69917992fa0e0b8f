// What a command answers, described once: named fields in the order of its JSON, and text that names them.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "longhand/core/tensor.h"
#include "longhand/train/cli/command.h"
#include "longhand/train/results/codec.h"

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
    const train::Json json = train::json_of(value);
    for (const auto& [name, field] : json.items()) fields_[name] = field;
    return *this;
  }

  /// Text, with fields in braces and the formats of fmt: "{step}", "{loss:.6f}"; also "{tokens:,}", which
  /// separates thousands, and "{bytes:MiB}".
  Answer& text(std::string_view format) { return text(format, fields_); }
  /// The same with the fields of another object, or with "{}" for a value that is none.
  Answer& text(std::string_view format, const train::Json& fields);
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
  train::Json fields_ = train::Json::object();
};

/// JSON of a list, of which make(value) makes each value.
template <class List, class F>
train::Json list_of(const List& list, F make) {
  train::Json out = train::Json::array();
  for (const auto& each : list) out.push_back(make(each));
  return out;
}

/// The dtype and the shape of a tensor.
train::Json json_of_type(const Tensor& tensor);

}  // namespace longhand::cli

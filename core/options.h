// Options: the values given in one section of a configuration, and where each was given.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace longhand {

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<std::string>>;

/// Formats a value as TOML: true, 3, 0.1, "text", [1, 2].
std::string to_string(const OptionValue& value);

/// The value of an option as read by the component that declares it.
struct EffectiveValue {
  OptionValue value;
  bool given = false;  // not the default
};
/// The options of a section that apply, by name, with the values read.
using EffectiveValues = std::map<std::string, EffectiveValue>;
/// The same for several sections, by the name of the section.
using EffectiveSections = std::map<std::string, EffectiveValues>;

/// The options that were given in one section of a configuration: by a file, the command line or
/// code. Components read them by declaring their own options: see core/schema.h.
class Options {
 public:
  /// A value and its location in errors, such as "config.toml:12:3". An `optional` value need not
  /// be read, and is ignored if its reader does not accept it: it belongs to a type in the file
  /// that the command line has replaced.
  struct Given {
    OptionValue value;
    std::string where{};
    bool optional = false;
  };

  explicit Options(std::string section = "") : section_(std::move(section)) {}

  const std::string& section() const { return section_; }

  void set(const std::string& key, OptionValue value, const std::string& where = "",
           bool optional = false);
  /// Returns the given value, or null.
  const Given* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Whether a value was given as optional.
  bool is_optional(std::string_view key) const;
  void erase(std::string_view key);
  /// The keys that are set, in alphabetical order.
  std::vector<std::string> keys() const;

  /// Throws ConfigError unless ok: "LOCATION: section.key = VALUE: MESSAGE", without location and
  /// value if the option was not given. For conditions that a describe() cannot state.
  void require(bool ok, std::string_view key, const std::string& message) const;

  /// Throws ConfigError for the first key that is not in `known` and not optional, naming the
  /// nearest known one, or all of them if none is near.
  void check_known(const std::vector<std::string>& known) const;

 private:
  // "config.toml:12:3: attention.k"
  std::string name_of(std::string_view key) const;

  std::string section_;
  std::map<std::string, Given, std::less<>> given_;
};

/// Returns the candidate with the smallest edit distance to `text`, if it is close enough to be a
/// typing error; else an empty string.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);
/// "; did you mean landmarks?" with the nearest of the candidates, or nothing.
std::string suggestion(std::string_view text, const std::vector<std::string>& candidates);

/// "a, b, c"
std::string comma_list(const std::vector<std::string>& words);
/// "a, b or c"
std::string or_list(const std::vector<std::string>& words);
/// Splits a text at separators, as std::getline() does: an empty text has no parts, and a separator
/// at the end adds no empty one.
std::vector<std::string> split_at(std::string_view text, char separator);
/// Returns the number if the whole text is one, otherwise nothing.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}
/// Returns the text with each character `what` replaced with `by`.
std::string replaced(std::string_view text, char what, std::string_view by);
/// The text in lower case (ASCII letters only).
std::string lower_case(std::string text);
/// "error-by-length" for "Error, by length": for names of files and labels.
std::string slug(const std::string& title);

}  // namespace longhand

// Options: the values of one section of a configuration, read by name and type, with errors that
// give the location of a value.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace longhand {

using OptionValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>,
                                 std::vector<std::string>>;

/// Formats a value as TOML: true, 3, 0.1, "text", [1, 2].
std::string to_string(const OptionValue& value);

/// A section is filled once, from a file, the command line or code, and read by the components that
/// it configures. The reader of an option gives its default, so the values read are the effective
/// configuration; an option that no component has read is unknown. Copies share what was read.
/// Every get throws ConfigError, naming section, key, location, the value found and the expected one.
class Options {
 public:
  explicit Options(std::string section = "");

  const std::string& section() const;

  /// Sets a value; `where` is its location in errors, such as "config.toml:12:3". An `optional` value
  /// need not be read, and is dropped if its reader does not accept it: it belongs to a type in the
  /// file that the command line has replaced.
  void set(const std::string& key, OptionValue value, const std::string& where = "",
           bool optional = false);
  /// Whether a value was set. Does not mark it as read.
  bool has(std::string_view key) const;
  /// Whether a value was set as optional.
  bool is_optional(std::string_view key) const;
  void erase(std::string_view key);
  /// The keys that are set, in alphabetical order.
  std::vector<std::string> keys() const;
  /// Sets `to_key` of `to` to the value and location of `key`. Afterwards `key` is no longer optional,
  /// because `to` has taken it over.
  void hand_over(const std::string& key, Options& to, const std::string& to_key) const;
  /// Adds an option to effective() that was read elsewhere.
  void record(const std::string& key, const OptionValue& value) const;

  bool get_bool(std::string_view key, bool default_value) const;
  /// Within [low, high].
  int64_t get_int(std::string_view key, int64_t default_value,
                  int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  /// Finite and within [low, high]; integers are accepted.
  double get_double(std::string_view key, double default_value,
                    double low = -std::numeric_limits<double>::infinity(),
                    double high = std::numeric_limits<double>::infinity()) const;
  /// A finite number for which fits() holds; `range` describes these, such as "above 0".
  double get_double(std::string_view key, double default_value,
                    const std::function<bool(double)>& fits, const std::string& range) const;
  std::string get_string(std::string_view key, const std::string& default_value) const;
  /// One of `choices`; the error lists them and the nearest one.
  std::string get_choice(std::string_view key, const std::string& default_value,
                         const std::vector<std::string>& choices) const;
  /// A single integer is read as a list of one.
  std::vector<int64_t> get_ints(std::string_view key,
                                const std::vector<int64_t>& default_value) const;
  /// One or more of `choices`; a single word is read as a list of one.
  std::vector<std::string> get_choices(std::string_view key,
                                       const std::vector<std::string>& default_value,
                                       const std::vector<std::string>& choices) const;

  /// Throws ConfigError unless ok: "LOCATION: section.key = VALUE: MESSAGE", where VALUE may be a
  /// default that was read. For conditions between options.
  void require(bool ok, std::string_view key, const std::string& message) const;

  /// Throws ConfigError for the first key that no component has read and that is not optional, naming
  /// the nearest one that was read, or all of them if none is near.
  void check_all_read() const;

  /// Throws ConfigError for the first key that is not in `known` and not optional, naming the nearest
  /// known one, or all of them if none is near.
  void check_known(const std::vector<std::string>& known) const;

  /// Every option read with its value, given or default, in alphabetical order.
  std::map<std::string, OptionValue> effective() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Returns the candidate with the smallest edit distance to `text`, if it is close enough to be a
/// typing error; else an empty string.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace longhand

// Options: the values of one section of a configuration, read by name and type, with errors that
// say where a value stands.
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

/// As TOML writes it: true, 3, 0.1, "text", [1, 2].
std::string to_string(const OptionValue& value);

/// A section is filled once, from a file, the command line or code, and read by the parts of the
/// program that it configures. Whoever reads an option names its default, so that the effective
/// configuration is what was read; what nobody has read is unknown. Copies share what was read.
/// Every get throws ConfigError, naming section, key, place, the value found and what is expected.
class Options {
 public:
  explicit Options(std::string section = "");

  const std::string& section() const;

  /// Sets a value; `where` is the place that errors name, such as "config.toml:12:3". Nobody needs
  /// to read an `optional` value, and one that does not fit its reader is dropped: a file gives it
  /// for what the command line replaced.
  void set(const std::string& key, OptionValue value, const std::string& where = "",
           bool optional = false);
  /// Whether a value was set. Asking is not reading.
  bool has(std::string_view key) const;
  /// Whether a value was set as optional.
  bool is_optional(std::string_view key) const;
  void erase(std::string_view key);
  /// The keys that are set, in alphabetical order.
  std::vector<std::string> keys() const;
  /// Sets `to_key` of `to` as `key` is set here, place and all. Such a key is not optional any more:
  /// `to` has taken it over.
  void hand_over(const std::string& key, Options& to, const std::string& to_key) const;
  /// Adds an option to effective(), for one that was read from elsewhere.
  void record(const std::string& key, const OptionValue& value) const;

  bool get_bool(std::string_view key, bool default_value) const;
  /// Within [low, high].
  int64_t get_int(std::string_view key, int64_t default_value,
                  int64_t low = std::numeric_limits<int64_t>::min(),
                  int64_t high = std::numeric_limits<int64_t>::max()) const;
  /// Finite and within [low, high]; integers count as numbers.
  double get_double(std::string_view key, double default_value,
                    double low = -std::numeric_limits<double>::infinity(),
                    double high = std::numeric_limits<double>::infinity()) const;
  /// A finite number for which fits() holds; `range` tells which, such as "above 0".
  double get_double(std::string_view key, double default_value,
                    const std::function<bool(double)>& fits, const std::string& range) const;
  std::string get_string(std::string_view key, const std::string& default_value) const;
  /// One of `choices`; the error lists them, and the nearest.
  std::string get_choice(std::string_view key, const std::string& default_value,
                         const std::vector<std::string>& choices) const;
  /// A single integer counts as a list of one.
  std::vector<int64_t> get_ints(std::string_view key,
                                const std::vector<int64_t>& default_value) const;
  /// One or more of `choices`; a single word counts as a list of one.
  std::vector<std::string> get_choices(std::string_view key,
                                       const std::vector<std::string>& default_value,
                                       const std::vector<std::string>& choices) const;

  /// Throws ConfigError unless ok: "PLACE: section.key = VALUE: MESSAGE", where VALUE may be a
  /// default that was read. For conditions between options that a reader finds later.
  void require(bool ok, std::string_view key, const std::string& message) const;

  /// Throws ConfigError for the first key that nobody has read and that is not optional, naming the
  /// nearest one that was read, or all of them if none is near.
  void check_all_read() const;

  /// Throws ConfigError for the first key that is not in `known` and not optional, naming the nearest
  /// known one, or all of them if none is near.
  void check_known(const std::vector<std::string>& known) const;

  /// Every option read, with the value it has: given or default, in alphabetical order.
  std::map<std::string, OptionValue> effective() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// The candidate with the smallest edit distance to `text`, if it is near enough to be a slip of
/// the fingers; else empty.
std::string nearest(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace longhand

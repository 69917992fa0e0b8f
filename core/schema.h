// Declared options: a component describes each option once, with its type, default, range and
// meaning. The description reads a configuration, dumps it, and documents it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "longhand/core/options.h"

namespace longhand {

/// Bounds of an integer option, both inclusive.
struct IntegerRange {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
};

/// Bounds of a floating-point option, inclusive unless open.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool open_low = false, open_high = false;

  static NumberRange above(double low) { return {.low = low, .open_low = true}; }
  /// [0, 1), such as a dropout probability or a decay.
  static NumberRange fraction() { return {.low = 0, .high = 1, .open_high = true}; }
};

/// One option as shown in documentation.
struct Field {
  std::string name;
  std::string type;           // boolean, integer, number, text, choice, integers or choices
  std::string values;         // "1 to 64", "at least 0", "a, b or c"; empty: any of its type
  std::string default_value;  // as TOML, or a phrase if it depends on other options
  std::string meaning;        // one phrase
  std::string condition;      // when the option applies: "kernel = \"relu\""; empty: always
};
using Schema = std::vector<Field>;

/// One option as describe() declares it.
struct Declaration {
  const std::string& name;
  const std::string& meaning;
  const std::string& default_text;                    // see OptionVisitor; empty: the value
  IntegerRange integers{};                            // of an integer, or of each in a list
  NumberRange numbers{};                              // of a number
  const std::vector<std::string>* choices = nullptr;  // of text, or of each in a list; null: any
};

/// The argument of describe() of an options struct. Each call declares one option and passes the
/// member that holds it, which has the default value before the call and the configured one after
/// it (documentation does not change it). A struct declares its options in the order in which they
/// are read and shown:
///
///   struct WindowOptions {
///     int64_t window = 64;
///     bool global = false;
///     int64_t global_tokens = 1;
///
///     void describe(OptionVisitor& v) {
///       v.integer("window", window, {1, 1 << 20}, "largest distance between query and key");
///       v.boolean("global", global, "whether some tokens attend to all");
///       v.when(global, "global = true", [&] {
///         v.integer("global_tokens", global_tokens, {1}, "tokens that attend to all");
///       });
///     }
///   };
///
/// A default that depends on options declared earlier is assigned in describe() after these, and
/// documented by `default_text`.
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;

  void boolean(const std::string& name, bool& value, const std::string& meaning,
               const std::string& default_text = "") {
    visit({name, meaning, default_text}, &value);
  }
  void integer(const std::string& name, int64_t& value, IntegerRange range,
               const std::string& meaning, const std::string& default_text = "") {
    visit({.name = name, .meaning = meaning, .default_text = default_text, .integers = range},
          &value);
  }
  void number(const std::string& name, double& value, NumberRange range, const std::string& meaning,
              const std::string& default_text = "") {
    visit({.name = name, .meaning = meaning, .default_text = default_text, .numbers = range},
          &value);
  }
  void text(const std::string& name, std::string& value, const std::string& meaning,
            const std::string& default_text = "") {
    visit({name, meaning, default_text}, &value);
  }
  /// One of a list of words.
  void choice(const std::string& name, std::string& value, const std::vector<std::string>& choices,
              const std::string& meaning, const std::string& default_text = "") {
    visit({.name = name, .meaning = meaning, .default_text = default_text, .choices = &choices},
          &value);
  }
  /// One integer or a list of them; a list of one is equivalent to the integer and dumped as the
  /// integer.
  void integers(const std::string& name, std::vector<int64_t>& value, IntegerRange each,
                const std::string& meaning, const std::string& default_text = "") {
    visit({.name = name, .meaning = meaning, .default_text = default_text, .integers = each},
          &value);
  }
  /// One word or a list of them, each one of `choices`; like integers().
  void words(const std::string& name, std::vector<std::string>& value,
             const std::vector<std::string>& choices, const std::string& meaning,
             const std::string& default_text = "") {
    visit({.name = name, .meaning = meaning, .default_text = default_text, .choices = &choices},
          &value);
  }

  /// An enumeration, given as one of a list of words.
  template <class Enum>
  void choice(const std::string& name, Enum& value,
              std::initializer_list<std::pair<const char*, Enum>> choices,
              const std::string& meaning) {
    std::vector<std::string> names;
    std::string word;
    for (const auto& [text, each] : choices) {
      names.emplace_back(text);
      if (each == value) word = text;
    }
    choice(name, word, names, meaning);
    for (const auto& [text, each] : choices)
      if (word == text) value = each;
  }

  /// Declares options that apply only under a condition, given as a TOML assignment such as
  /// `kernel = "relu"` or as a phrase that follows "with". If it does not hold, reading skips them
  /// and rejects a configuration that sets one; documentation shows them with the condition.
  template <class Declare>
  void when(bool applies, const std::string& condition, Declare declare) {
    conditions_.emplace_back(applies, condition);
    declare();
    conditions_.pop_back();
  }

  /// Checks a condition between options, on reading only, and within when() only if that applies.
  /// Throws ConfigError unless ok, with the location and value of option `name`, and `message`.
  virtual void require(bool ok, const std::string& name, const std::string& message) = 0;

 protected:
  using Target = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                              std::vector<std::string>*>;
  virtual void visit(const Declaration& option, Target value) = 0;

  std::vector<std::pair<bool, std::string>> conditions_;  // of the option, and whether they hold
};

/// Reads `section` into an options struct. Throws ConfigError for values of another type or out of
/// range, and for options that are set but do not apply, naming section, option, location, the
/// value found and the expected one. Call check_unknown() after the last describe() that reads the
/// section, which must outlive the reader.
class OptionReader final : public OptionVisitor {
 public:
  explicit OptionReader(const Options& section) : section_(section) {}

  /// The values of the options declared so far that apply.
  const EffectiveValues& values() const { return values_; }
  /// Throws ConfigError for the first option of the section that has not been declared, naming the
  /// nearest one that was.
  void check_unknown() const { section_.check_known(declared_); }

  void require(bool ok, const std::string& name, const std::string& message) override;

 private:
  void visit(const Declaration& option, Target value) override;

  const Options& section_;
  EffectiveValues values_;
  std::vector<std::string> declared_;  // whether they apply or not
};

/// Collects the declarations of describe().
class SchemaWriter final : public OptionVisitor {
 public:
  Schema take() { return std::move(schema_); }

  void require(bool, const std::string&, const std::string&) override {}

 private:
  void visit(const Declaration& option, Target value) override;

  Schema schema_;
};

/// Reads options of type S from a section; `options` holds the defaults. `values` is set to the
/// values that apply.
template <class S>
S read_options(const Options& section, S options = {}, EffectiveValues* values = nullptr) {
  OptionReader reader(section);
  options.describe(reader);
  if (values) *values = reader.values();
  return options;
}

/// The same for a section with no other declarations: options that S does not declare are errors.
template <class S>
S read_section(const Options& section, S options = {}, EffectiveValues* values = nullptr) {
  OptionReader reader(section);
  options.describe(reader);
  reader.check_unknown();
  if (values) *values = reader.values();
  return options;
}

/// The declarations of S::describe(), with the defaults in `options`.
template <class S>
Schema schema_of(S options = {}) {
  SchemaWriter writer;
  options.describe(writer);
  return writer.take();
}

/// The names of the options of a schema.
std::vector<std::string> names_of(const Schema& schema);
/// The schema as a Markdown table: option, values, default, meaning.
std::string to_markdown(const Schema& schema);
/// The schema as aligned text for a terminal of `width` columns.
std::string to_text(const Schema& schema, int64_t width = 80);

}  // namespace longhand

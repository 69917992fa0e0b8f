// Options of any declaration and any value, as configurations hold them.
#include <algorithm>
#include <limits>

#include "longhand/core/error.h"
#include "longhand/core/schema.h"
#include "longhand/train/config/config.h"
#include "tests/support/property.h"

using namespace longhand;
using namespace longhand::test;
using longhand::train::Config;
using longhand::train::to_toml;

namespace {

enum class Kind { boolean, integer, number, text, choice, integers, words };

/// An option as describe() would declare it.
struct Declared {
  std::string name;
  Kind kind;
  IntegerRange integers{};
  NumberRange numbers{};
  std::vector<std::string> choices{};
};

/// Text of any characters, those that TOML must escape included.
std::string any_text() {
  std::string text;
  for (int64_t n = any_of(0, 8); n > 0; --n)
    text += one_of<std::string>({"a",
                                 "1",
                                 "true",
                                 " ",
                                 "\"",
                                 "\\",
                                 "'",
                                 "\n",
                                 "\t",
                                 "\r",
                                 "#",
                                 "=",
                                 "[",
                                 "]",
                                 ".",
                                 "\x01",
                                 "\x1b",
                                 "\x7f",
                                 "\xc2\x85",
                                 "\xce\xbb",
                                 "\xe2\x82\xac",
                                 "\xf0\x9f\x98\x80",
                                 "\"\"\"",
                                 "\\u0041"});
  return text;
}

int64_t any_integer(const IntegerRange& range) {
  const int64_t near = any_of(-40, 40);
  return one_of<int64_t>({range.low, range.high, std::clamp(near, range.low, range.high)});
}

/// A number in a range; a bound that does not belong to it is passed by.
double any_number(const NumberRange& range) {
  double x = one_of<double>({range.low, range.high, 0.0, -0.0, 1.0, 0.1, 1e-300, 5e-324, 1e300,
                             1e22, 1.0 / 3, static_cast<double>(any_of(-1000, 1000)) / 64});
  constexpr double largest = std::numeric_limits<double>::max();  // infinity is no option
  x = std::clamp(x, std::max(range.low, -largest), std::min(range.high, largest));
  const double inf = std::numeric_limits<double>::infinity();
  if (range.open_low && x == range.low) x = std::nextafter(range.low, inf);
  if (range.open_high && x == range.high) x = std::nextafter(range.high, -inf);
  return x;
}

std::vector<Declared> any_declarations() {
  std::vector<Declared> out;
  for (int64_t n = any_of(1, 6); n > 0; --n) {
    Declared d{"option" + std::to_string(n), static_cast<Kind>(any_of(0, 6))};
    if (any_of(0, 1)) d.integers = {any_of(-20, 0), any_of(1, 20)};
    if (any_of(0, 1)) {
      d.numbers = {static_cast<double>(any_of(-8, 0)) / 4, static_cast<double>(any_of(1, 8)) / 4};
      d.numbers.open_low = any_of(0, 1);
      d.numbers.open_high = any_of(0, 1);
    }
    for (int64_t i = any_of(1, 4); i > 0; --i) d.choices.push_back("word" + std::to_string(i));
    out.push_back(d);
  }
  return out;
}

OptionValue any_value(const Declared& d) {
  std::vector<int64_t> integers;
  std::vector<std::string> words;
  for (int64_t n = any_of(1, 4); n > 0; --n) {
    integers.push_back(any_integer(d.integers));
    words.push_back(one_of(d.choices));
  }
  switch (d.kind) {
    case Kind::boolean:
      return any_of(0, 1) == 1;
    case Kind::integer:
      return any_integer(d.integers);
    case Kind::number:
      return any_number(d.numbers);
    case Kind::text:
      return any_text();
    case Kind::choice:
      return one_of(d.choices);
    case Kind::integers:
      return integers;
    default:
      return words;
  }
}

/// A value that the option must refuse: of another type, or out of its range.
OptionValue any_invalid(const Declared& d) {
  const bool bounded = d.integers.high < 100;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  switch (d.kind) {
    case Kind::boolean:
      return one_of<OptionValue>({int64_t{1}, 0.5, std::string("true"), std::vector<int64_t>{1}});
    case Kind::integer:
      if (bounded) return one_of<OptionValue>({d.integers.low - 1, d.integers.high + 1});
      return one_of<OptionValue>({true, 0.5, std::string("1"), std::vector<int64_t>{1, 2}});
    case Kind::number:
      if (d.numbers.high < 100)
        return one_of<OptionValue>({nan, d.numbers.low - 1, d.numbers.high + 1,
                                    d.numbers.open_low ? d.numbers.low : nan,
                                    d.numbers.open_high ? d.numbers.high : nan});
      return one_of<OptionValue>({true, std::string("0.1"), std::vector<int64_t>{1, 2}, nan,
                                  std::numeric_limits<double>::infinity()});
    case Kind::text:
      return one_of<OptionValue>({true, int64_t{1}, 0.5, std::vector<int64_t>{1, 2},
                                  std::string("\xff"), std::string("a\xc3")});
    case Kind::choice:
      return one_of<OptionValue>(
          {true, int64_t{1}, std::string("word9"), std::string(), std::string("Word1")});
    case Kind::integers:
      if (bounded) return std::vector<int64_t>{0, d.integers.high + 1};
      return one_of<OptionValue>(
          {true, 0.5, std::string("1"), std::vector<int64_t>{}, std::vector<std::string>{"1"}});
    default:
      return one_of<OptionValue>({true, int64_t{1}, std::string("word9"),
                                  std::vector<std::string>{},
                                  std::vector<std::string>{d.choices[0], "word9"}});
  }
}

struct AnyOptions {
  std::vector<Declared> declarations{};

  void describe(OptionVisitor& v) {
    for (const Declared& d : declarations) {
      bool boolean = false;
      int64_t integer = d.integers.low;
      double number = d.numbers.high / 2 + d.numbers.low / 2;
      std::string text, choice = d.choices[0];
      std::vector<int64_t> integers{d.integers.high};
      std::vector<std::string> words{d.choices[0]};
      switch (d.kind) {
        case Kind::boolean:
          v.boolean(d.name, boolean, "a boolean");
          break;
        case Kind::integer:
          v.integer(d.name, integer, d.integers, "an integer");
          break;
        case Kind::number:
          if (!(number == number)) number = 1;  // of -inf and inf
          v.number(d.name, number, d.numbers, "a number");
          break;
        case Kind::text:
          v.text(d.name, text, "text");
          break;
        case Kind::choice:
          v.choice(d.name, choice, d.choices, "a word");
          break;
        case Kind::integers:
          v.integers(d.name, integers, d.integers, "integers");
          break;
        case Kind::words:
          v.words(d.name, words, d.choices, "words");
      }
    }
  }
};

std::string dumped(const Config& config, const AnyOptions& options) {
  EffectiveSections sections;
  read_section(config.model(), options, &sections["model"]);
  return to_toml(sections);
}

}  // namespace

TEST_CASE("property: a configuration survives being written and read, byte for byte") {
  require_always(
      "configurations",
      [] {
        const AnyOptions options{any_declarations()};
        Config config;
        std::map<std::string, OptionValue> given;
        for (const Declared& d : options.declarations)
          if (any_of(0, 3)) {
            given["model." + d.name] = any_value(d);
            config.assign("model", d.name, given["model." + d.name], "here");
          }
        RC_ASSERT(config.given() == given);
        const std::string text = dumped(config, options);
        const Config again = Config::parse(text, "dump.toml");
        RC_ASSERT(dumped(again, options) == text);
        RC_ASSERT(again.given().size() == options.declarations.size());
        // As on a command line.
        Config assigned;
        for (const auto& [name, value] : again.given())
          assigned.assign(name + "=" + to_string(value));
        RC_ASSERT(dumped(assigned, options) == text);
      },
      300);
}

TEST_CASE("property: an invalid value is refused by name, and nothing else is") {
  require_always(
      "refusals",
      [] {
        const AnyOptions options{any_declarations()};
        Config config;
        for (const Declared& d : options.declarations)
          if (any_of(0, 1)) config.assign("model", d.name, any_value(d), "here");
        const std::string before = dumped(config, options);
        const Declared& wrong = one_of(options.declarations);
        Config bad = config;
        bad.assign("model", wrong.name, any_invalid(wrong), "elsewhere");
        const auto given = bad.given();
        EffectiveValues values;
        std::string message;
        try {
          read_section(bad.model(), options, &values);
        } catch (const ConfigError& error) {
          message = error.what();
        }
        RC_ASSERT(message.starts_with("elsewhere: model." + wrong.name + " = "));
        RC_ASSERT(message.find("expected ") != std::string::npos);
        RC_ASSERT(values.empty());
        RC_ASSERT(bad.given() == given || given != given);  // holds NaN

        Config unknown = config;
        unknown.assign("model", "optoin1", true, "elsewhere");
        message = "";
        try {
          read_section(unknown.model(), options);
        } catch (const ConfigError& error) {
          message = error.what();
        }
        RC_ASSERT(message.starts_with("elsewhere: model.optoin1: unknown option"));
        RC_ASSERT_THROWS_AS(config.assign("modle", wrong.name, any_value(wrong), "here"),
                            ConfigError);
        RC_ASSERT(dumped(config, options) == before);
      },
      300);
}

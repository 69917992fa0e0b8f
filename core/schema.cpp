#include "longhand/core/schema.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <tuple>
#include <type_traits>

#include "longhand/core/error.h"
#include "longhand/core/utf8.h"

namespace longhand {
namespace {

// Large powers of two, which are technical limits, as "2^20".
std::string text_of(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= int64_t{1} << 16 && std::has_single_bit(bits))
    return concat_message("2^", std::countr_zero(bits));
  return to_string(OptionValue(value));
}

// Without the ".0" that TOML requires.
std::string text_of(double value) {
  std::string text = to_string(OptionValue(value));
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

// "1 to 64", "at least 0", "above 0 and below 1"; empty without bounds.
std::string text_of(const IntegerRange& range) {
  const bool low = range.low != IntegerRange{}.low, high = range.high != IntegerRange{}.high;
  if (low && high) return text_of(range.low) + " to " + text_of(range.high);
  if (low) return "at least " + text_of(range.low);
  return high ? "at most " + text_of(range.high) : "";
}

std::string text_of(const NumberRange& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (low && high && !range.open_low && !range.open_high)
    return text_of(range.low) + " to " + text_of(range.high);
  std::string text;
  if (low) text = (range.open_low ? "above " : "at least ") + text_of(range.low);
  if (high)
    text += (low ? " and " : "") + std::string(range.open_high ? "below " : "at most ") +
            text_of(range.high);
  return text;
}

bool within(double value, const NumberRange& range) {
  return std::isfinite(value) && (range.open_low ? value > range.low : value >= range.low) &&
         (range.open_high ? value < range.high : value <= range.high);
}

// A list of one is equivalent to its item, and is written as the item in either case.
template <class T>
OptionValue canonical(const T& value) {
  return value;
}
template <class T>
OptionValue canonical(const std::vector<T>& values) {
  if (values.size() == 1) return values.front();
  return values;
}

// ---- reading -----------------------------------------------------------------------------------

// Each of these sets `to` to a given value, or returns what was expected instead.

std::string convert(const OptionValue& given, const Declaration&, bool& to) {
  const bool* const value = std::get_if<bool>(&given);
  if (!value) return "expected true or false";
  to = *value;
  return "";
}

std::string convert(const OptionValue& given, const Declaration& option, int64_t& to) {
  const IntegerRange& range = option.integers;
  const int64_t* const value = std::get_if<int64_t>(&given);
  if (value && range.low <= *value && *value <= range.high) {
    to = *value;
    return "";
  }
  const bool low = range.low != IntegerRange{}.low, high = range.high != IntegerRange{}.high;
  std::string message = "expected an integer";
  if (low && high)
    message += concat_message(" from ", range.low, " to ", range.high);
  else if (low)
    message += concat_message(" of at least ", range.low);
  else if (high)
    message += concat_message(" of at most ", range.high);
  return message;
}

// Integers count as numbers.
std::string convert(const OptionValue& given, const Declaration& option, double& to) {
  const double* const number = std::get_if<double>(&given);
  const int64_t* const integer = std::get_if<int64_t>(&given);
  if (number || integer) {
    const double value = number ? *number : static_cast<double>(*integer);
    if (within(value, option.numbers)) {
      to = value;
      return "";
    }
  }
  const std::string range = text_of(option.numbers);
  const bool is_side = range.starts_with("above") || range.starts_with("below");
  const char* const word = range.empty()              ? ""
                           : is_side                  ? " "
                           : range.starts_with("at ") ? " of "
                                                      : " from ";
  return "expected a finite number" + (word + range);
}

std::string convert(const OptionValue& given, const Declaration& option, std::string& to) {
  const std::string* const value = std::get_if<std::string>(&given);
  const std::vector<std::string>* const choices = option.choices;
  if (value && !choices && !is_utf8(*value)) return "expected text in UTF-8";
  if (value && (!choices || std::ranges::find(*choices, *value) != choices->end())) {
    to = *value;
    return "";
  }
  if (!choices) return "expected text in quotes";
  return "expected one of " + comma_list(*choices) + (value ? suggestion(*value, *choices) : "");
}

std::string convert(const OptionValue& given, const Declaration& option, std::vector<int64_t>& to) {
  std::vector<int64_t> values;
  if (const auto* const list = std::get_if<std::vector<int64_t>>(&given)) {
    values = *list;
  } else if (const auto* const value = std::get_if<int64_t>(&given)) {
    values = {*value};
  } else {
    // The element type of an empty list is unknown.
    const auto* const texts = std::get_if<std::vector<std::string>>(&given);
    if (!texts || !texts->empty()) return "expected an integer or a list of integers";
  }
  if (values.empty()) return "expected at least one integer";
  for (const int64_t value : values)
    if (value < option.integers.low || value > option.integers.high)
      return "expected integers, each " + text_of(option.integers);
  to = std::move(values);
  return "";
}

std::string convert(const OptionValue& given, const Declaration& option,
                    std::vector<std::string>& to) {
  std::vector<std::string> words;
  if (const auto* const list = std::get_if<std::vector<std::string>>(&given))
    words = *list;
  else if (const auto* const word = std::get_if<std::string>(&given))
    words = {*word};
  const std::vector<std::string>& choices = *option.choices;
  const auto wrong = std::ranges::find_if(words, [&](const std::string& word) {
    return std::ranges::find(choices, word) == choices.end();
  });
  if (words.empty() || wrong != words.end())
    return "expected one of " + comma_list(choices) + ", or a list of them" +
           (wrong == words.end() ? "" : suggestion(*wrong, choices));
  to = std::move(words);
  return "";
}

}  // namespace

void OptionReader::visit(const Declaration& option, Target target) {
  declared_.push_back(option.name);
  const Options::Given* const given = section_.find(option.name);
  for (const auto& [holds, condition] : conditions_) {
    if (holds) continue;
    section_.require(!given || given->optional, option.name,
                     "this option applies only with " + condition);
    return;
  }
  const auto read = [&](auto* value) {
    bool accepted = false;
    if (given) {
      const std::string expected = convert(given->value, option, *value);
      accepted = expected.empty();
      section_.require(accepted || given->optional, option.name, expected);
    }
    values_.insert_or_assign(option.name, EffectiveValue{canonical(*value), accepted});
  };
  std::visit(read, target);
}

void OptionReader::require(bool ok, const std::string& name, const std::string& message) {
  const bool applies =
      std::ranges::all_of(conditions_, [](const auto& condition) { return condition.first; });
  if (ok || !applies) return;
  const auto read = values_.find(name);
  if (read == values_.end() || read->second.given) return section_.require(false, name, message);
  const std::string& section = section_.section();
  throw ConfigError(concat_message(section.empty() ? "" : section + '.', name, " = ",
                                   to_string(read->second.value), " (the default): ", message));
}

// ---- documentation -----------------------------------------------------------------------------

void SchemaWriter::visit(const Declaration& option, Target target) {
  Field field;
  field.name = option.name;
  field.meaning = option.meaning;
  const std::string words = option.choices ? or_list(*option.choices) : "";
  static_assert(
      std::is_same_v<Target, std::variant<bool*, int64_t*, double*, std::string*,
                                          std::vector<int64_t>*, std::vector<std::string>*>>);
  const std::pair<std::string, std::string> kinds[] = {
      {"boolean", "true or false"},           {"integer", text_of(option.integers)},
      {"number", text_of(option.numbers)},    {option.choices ? "choice" : "text", words},
      {"integers", text_of(option.integers)}, {"choices", words}};
  std::tie(field.type, field.values) = kinds[target.index()];
  field.default_value =
      option.default_text.empty()
          ? std::visit([](const auto* value) { return to_string(canonical(*value)); }, target)
          : option.default_text;
  for (const auto& [holds, condition] : conditions_)
    field.condition += (field.condition.empty() ? "" : ", ") + condition;
  schema_.push_back(std::move(field));
}

std::vector<std::string> names_of(const Schema& schema) {
  std::vector<std::string> names;
  for (const Field& field : schema) names.push_back(field.name);
  return names;
}

std::string to_markdown(const Schema& schema) {
  std::string out = "| option | values | default | meaning |\n| --- | --- | --- | --- |\n";
  const auto without_pipes = [](const std::string& text) { return replaced(text, '|', "\\|"); };
  for (const Field& f : schema)
    out += "| `" + f.name + "` | " + without_pipes(f.values.empty() ? f.type : f.values) + " | " +
           without_pipes(f.default_value) + " | " + without_pipes(f.meaning) +
           (f.condition.empty() ? "" : "; with " + without_pipes(f.condition)) + " |\n";
  return out;
}

std::string to_text(const Schema& schema, int64_t width) {
  size_t indent = 0;
  for (const Field& f : schema) indent = std::max(indent, f.name.size() + 4);
  const auto room = static_cast<size_t>(std::max<int64_t>(width, 40)) - indent;
  std::string out;
  for (const Field& f : schema) {
    std::string text = f.meaning;
    if (!f.condition.empty()) text += "; with " + f.condition;
    text += " (" + (f.values.empty() ? f.type : f.values) + "; default " + f.default_value + ")";
    std::string head = "  " + f.name;
    head.resize(indent, ' ');
    for (const std::string& line : wrapped(text, room)) {
      out += head + line + "\n";
      head.assign(indent, ' ');
    }
  }
  return out;
}

}  // namespace longhand

#include "longhand/core/schema.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "longhand/core/error.h"

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

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

template <class T>
std::string text_of_list(const std::vector<T>& values) {
  return values.size() == 1 ? to_string(OptionValue(values.front()))
                            : to_string(OptionValue(values));
}

// Number of characters of UTF-8 text.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

// Wraps `text` into lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::string line;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && width_of(line) + 1 + width_of(word) > width) {
      lines.push_back(line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::string without_pipes(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

}  // namespace

// ---- reading -----------------------------------------------------------------------------------

bool OptionReader::applies(const std::string& name) {
  declared_.push_back(name);
  for (const auto& [holds, condition] : conditions_) {
    if (holds) continue;
    section_.require(!section_.has(name) || section_.is_optional(name), name,
                     "this option applies only with " + condition);
    return false;
  }
  return true;
}

void OptionReader::boolean(const std::string& name, bool& value, const std::string&,
                           const std::string&) {
  if (applies(name)) value = section_.get_bool(name, value);
}

void OptionReader::integer(const std::string& name, int64_t& value, IntegerRange range,
                           const std::string&, const std::string&) {
  if (applies(name)) value = section_.get_int(name, value, range.low, range.high);
}

void OptionReader::number(const std::string& name, double& value, NumberRange range,
                          const std::string&, const std::string&) {
  if (!applies(name)) return;
  value = section_.get_double(
      name, value, [&](double x) { return within(x, range); }, text_of(range));
}

void OptionReader::text(const std::string& name, std::string& value, const std::string&,
                        const std::string&) {
  if (applies(name)) value = section_.get_string(name, value);
}

void OptionReader::choice(const std::string& name, std::string& value,
                          const std::vector<std::string>& choices, const std::string&,
                          const std::string&) {
  if (applies(name)) value = section_.get_choice(name, value, choices);
}

void OptionReader::integers(const std::string& name, std::vector<int64_t>& value, IntegerRange each,
                            const std::string&, const std::string&) {
  if (!applies(name)) return;
  value = section_.get_ints(name, value);
  section_.require(!value.empty(), name, "expected at least one integer");
  for (const int64_t item : value)
    section_.require(each.low <= item && item <= each.high, name,
                     "expected integers, each " + text_of(each));
}

void OptionReader::words(const std::string& name, std::vector<std::string>& value,
                         const std::vector<std::string>& choices, const std::string&,
                         const std::string&) {
  if (applies(name)) value = section_.get_choices(name, value, choices);
}

void OptionReader::require(bool ok, const std::string& name, const std::string& message) {
  const bool applies = std::all_of(conditions_.begin(), conditions_.end(),
                                   [](const auto& condition) { return condition.first; });
  section_.require(ok || !applies, name, message);
}

// ---- documentation -----------------------------------------------------------------------------

void SchemaWriter::add(const std::string& name, const char* type, std::string values,
                       const std::string& default_value, const std::string& default_text,
                       const std::string& meaning) {
  std::string condition;
  for (const std::string& each : conditions_) condition += (condition.empty() ? "" : ", ") + each;
  schema_.push_back({name, type, std::move(values),
                     default_text.empty() ? default_value : default_text, meaning, condition});
}

void SchemaWriter::boolean(const std::string& name, bool& value, const std::string& meaning,
                           const std::string& default_text) {
  add(name, "boolean", "true or false", to_string(OptionValue(value)), default_text, meaning);
}

void SchemaWriter::integer(const std::string& name, int64_t& value, IntegerRange range,
                           const std::string& meaning, const std::string& default_text) {
  add(name, "integer", text_of(range), to_string(OptionValue(value)), default_text, meaning);
}

void SchemaWriter::number(const std::string& name, double& value, NumberRange range,
                          const std::string& meaning, const std::string& default_text) {
  add(name, "number", text_of(range), to_string(OptionValue(value)), default_text, meaning);
}

void SchemaWriter::text(const std::string& name, std::string& value, const std::string& meaning,
                        const std::string& default_text) {
  add(name, "text", "", to_string(OptionValue(value)), default_text, meaning);
}

void SchemaWriter::choice(const std::string& name, std::string& value,
                          const std::vector<std::string>& choices, const std::string& meaning,
                          const std::string& default_text) {
  add(name, "choice", joined(choices), to_string(OptionValue(value)), default_text, meaning);
}

void SchemaWriter::integers(const std::string& name, std::vector<int64_t>& value, IntegerRange each,
                            const std::string& meaning, const std::string& default_text) {
  add(name, "integers", text_of(each), text_of_list(value), default_text, meaning);
}

void SchemaWriter::words(const std::string& name, std::vector<std::string>& value,
                         const std::vector<std::string>& choices, const std::string& meaning,
                         const std::string& default_text) {
  add(name, "choices", joined(choices), text_of_list(value), default_text, meaning);
}

std::vector<std::string> names_of(const Schema& schema) {
  std::vector<std::string> names;
  for (const Field& field : schema) names.push_back(field.name);
  return names;
}

std::string to_markdown(const Schema& schema) {
  std::string out = "| option | values | default | meaning |\n| --- | --- | --- | --- |\n";
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

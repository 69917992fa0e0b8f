#include "longhand/core/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "longhand/core/error.h"

namespace longhand {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number, and as a float: TOML reads 1 as an integer.
std::string text_of(double value) {
  char buffer[32];
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string text_of(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (code < 0x20 || code == 0x7f) {
      constexpr char digits[] = "0123456789abcdef";
      text += {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
    } else {
      text += c;
    }
  }
  return text + '"';
}

template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) text += (text.size() > 1 ? ", " : "") + text_of(value);
  return text + ']';
}

}  // namespace

std::string to_string(const OptionValue& value) {
  return std::visit([](const auto& v) { return text_of(v); }, value);
}

void Options::set(const std::string& key, OptionValue value, const std::string& where,
                  bool optional) {
  given_.insert_or_assign(key, Given{std::move(value), where, optional});
}

const Options::Given* Options::find(std::string_view key) const {
  const auto it = given_.find(key);
  return it == given_.end() ? nullptr : &it->second;
}

bool Options::is_optional(std::string_view key) const {
  const Given* const given = find(key);
  return given && given->optional;
}

void Options::erase(std::string_view key) {
  if (const auto it = given_.find(key); it != given_.end()) given_.erase(it);
}

std::vector<std::string> Options::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, given] : given_) keys.push_back(key);
  return keys;
}

std::string Options::name_of(std::string_view key) const {
  const Given* const given = find(key);
  std::string text = given && !given->where.empty() ? given->where + ": " : "";
  if (!section_.empty()) text += section_ + '.';
  return text.append(key);
}

void Options::require(bool ok, std::string_view key, const std::string& message) const {
  if (ok) return;
  const Given* const given = find(key);
  throw ConfigError(
      concat_message(name_of(key), given ? " = " + to_string(given->value) : "", ": ", message));
}

void Options::check_known(const std::vector<std::string>& known) const {
  for (const auto& [key, given] : given_) {
    if (given.optional || std::ranges::find(known, key) != known.end()) continue;
    std::string hint = suggestion(key, known);
    if (hint.empty())
      hint =
          known.empty() ? "; this section has no options" : "; known options: " + comma_list(known);
    throw ConfigError(name_of(key) + ": unknown option" + hint);
  }
}

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  // Insertions, deletions, substitutions and swaps of neighbours each count as one.
  const auto distance = [text](std::string_view other) {
    std::vector<size_t> before(other.size() + 1), above(other.size() + 1), row(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= text.size(); ++i) {
      std::swap(before, above);
      std::swap(above, row);
      row[0] = i;
      for (size_t j = 1; j <= other.size(); ++j) {
        const bool same = text[i - 1] == other[j - 1];
        row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
        if (i > 1 && j > 1 && text[i - 1] == other[j - 2] && text[i - 2] == other[j - 1])
          row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    return row.back();
  };
  std::string best;
  // At most a third of the letters (from 1 to 3) may differ, and not all of them.
  size_t limit = std::min<size_t>(std::max<size_t>(1, text.size() / 3), 3);
  if (text.size() <= limit) return best;
  for (const std::string& candidate : candidates) {
    const size_t d = distance(candidate);
    if (d < limit || (d == limit && best.empty())) {
      best = candidate;
      limit = d;
    }
  }
  return best;
}

std::string suggestion(std::string_view text, const std::vector<std::string>& candidates) {
  const std::string near = nearest(text, candidates);
  return near.empty() ? "" : "; did you mean " + near + '?';
}

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::string or_list(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end, text.size() - 1) + 1);
  }
  return parts;
}

std::string replaced(std::string_view text, char what, std::string_view by) {
  std::string out;
  for (const char c : text) out += c == what ? by : std::string_view(&c, 1);
  return out;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string slug(const std::string& title) {
  std::string out;
  for (const char c : lower_case(title))
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += c;
    else if (!out.empty() && !out.ends_with('-'))
      out += '-';
  if (out.ends_with('-')) out.pop_back();
  return out;
}

}  // namespace longhand

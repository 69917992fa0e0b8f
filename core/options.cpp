#include "longhand/core/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "longhand/core/error.h"

namespace longhand {
namespace {

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(int64_t value) { return std::to_string(value); }

// The shortest text that reads back as the same number, and as a float: TOML takes 1 for an
// integer.
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

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// "expected an integer from 1 to 8", "expected a finite number of at least 0.0"
template <class T>
std::string expected(const char* what, T low, T high, T lowest, T highest) {
  const bool has_low = low != lowest, has_high = high != highest;
  std::string text = std::string("expected ") + what;
  if (has_low && has_high)
    text += " from " + text_of(low) + " to " + text_of(high);
  else if (has_low)
    text += " of at least " + text_of(low);
  else if (has_high)
    text += " of at most " + text_of(high);
  return text;
}

// "; did you mean landmarks?" or nothing
std::string suggestion(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? "" : "; did you mean " + near + '?';
}

// A list of one is equivalent to its item, and is written as the item in either case.
OptionValue canonical(OptionValue value) {
  if (const auto* const list = std::get_if<std::vector<int64_t>>(&value); list && list->size() == 1)
    return list->front();
  if (const auto* const list = std::get_if<std::vector<std::string>>(&value);
      list && list->size() == 1)
    return list->front();
  return value;
}

}  // namespace

std::string to_string(const OptionValue& value) {
  return std::visit([](const auto& v) { return text_of(v); }, value);
}

struct Options::State {
  struct Given {
    OptionValue value;
    std::string where;
    bool optional;
  };

  std::string section;
  std::map<std::string, Given, std::less<>> given;
  std::map<std::string, OptionValue, std::less<>> read;

  // "config.toml:12:3: attention.k"
  std::string name(std::string_view key) const {
    std::string text;
    if (const auto it = given.find(key); it != given.end() && !it->second.where.empty())
      text = it->second.where + ": ";
    if (!section.empty()) text += section + '.';
    return text.append(key);
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& message) const {
    std::string text = name(key);
    if (const auto g = given.find(key); g != given.end())
      text += " = " + to_string(g->second.value);
    else if (const auto r = read.find(key); r != read.end())
      text += " = " + to_string(r->second) + " (the default)";
    throw ConfigError(text + ": " + message);
  }

  // The value given for `key`, or `default_value`; marks the key as read. convert(value, to) returns
  // whether the value is acceptable.
  template <class T, class Convert>
  T get(std::string_view key, T default_value, const std::string& message, Convert convert) {
    if (const auto it = given.find(key); it != given.end()) {
      T value = default_value;
      if (convert(it->second.value, value))
        default_value = value;
      else if (it->second.optional)  // it was given for another reader
        given.erase(it);
      else
        refuse(key, message);
    }
    read.insert_or_assign(std::string(key), canonical(OptionValue(default_value)));
    return default_value;
  }
};

Options::Options(std::string section) : state_(std::make_shared<State>()) {
  state_->section = std::move(section);
}

const std::string& Options::section() const { return state_->section; }

void Options::set(const std::string& key, OptionValue value, const std::string& where,
                  bool optional) {
  state_->given.insert_or_assign(key, State::Given{std::move(value), where, optional});
}

bool Options::has(std::string_view key) const { return state_->given.contains(key); }

bool Options::is_optional(std::string_view key) const {
  const auto it = state_->given.find(key);
  return it != state_->given.end() && it->second.optional;
}

void Options::erase(std::string_view key) {
  if (const auto it = state_->given.find(key); it != state_->given.end()) state_->given.erase(it);
}

std::vector<std::string> Options::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, given] : state_->given) keys.push_back(key);
  return keys;
}

void Options::hand_over(const std::string& key, Options& to, const std::string& to_key) const {
  const auto it = state_->given.find(key);
  if (it == state_->given.end()) return;
  to.state_->given.insert_or_assign(to_key, it->second);
  it->second.optional = false;
}

void Options::record(const std::string& key, const OptionValue& value) const {
  state_->read.insert_or_assign(key, canonical(value));
}

bool Options::get_bool(std::string_view key, bool default_value) const {
  return state_->get(key, default_value, "expected true or false",
                     [](const OptionValue& value, bool& to) {
                       const bool* const b = std::get_if<bool>(&value);
                       if (b) to = *b;
                       return b != nullptr;
                     });
}

int64_t Options::get_int(std::string_view key, int64_t default_value, int64_t low,
                         int64_t high) const {
  using Limits = std::numeric_limits<int64_t>;
  return state_->get(key, default_value,
                     expected("an integer", low, high, Limits::min(), Limits::max()),
                     [&](const OptionValue& value, int64_t& to) {
                       const int64_t* const i = std::get_if<int64_t>(&value);
                       if (i) to = *i;
                       return i && low <= *i && *i <= high;
                     });
}

namespace {

// Whether a value is a finite number, which `to` then is; integers count as numbers.
bool read_number(const OptionValue& value, double& to) {
  if (const double* const d = std::get_if<double>(&value))
    to = *d;
  else if (const int64_t* const i = std::get_if<int64_t>(&value))
    to = static_cast<double>(*i);
  else
    return false;
  return std::isfinite(to);
}

}  // namespace

double Options::get_double(std::string_view key, double default_value, double low,
                           double high) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return state_->get(key, default_value,
                     expected("a finite number", low, high, -infinity, infinity),
                     [&](const OptionValue& value, double& to) {
                       return read_number(value, to) && low <= to && to <= high;
                     });
}

double Options::get_double(std::string_view key, double default_value,
                           const std::function<bool(double)>& fits,
                           const std::string& range) const {
  return state_->get(
      key, default_value, "expected a finite number" + (range.empty() ? "" : " " + range),
      [&](const OptionValue& value, double& to) { return read_number(value, to) && fits(to); });
}

std::string Options::get_string(std::string_view key, const std::string& default_value) const {
  return state_->get(key, default_value, "expected text in quotes",
                     [](const OptionValue& value, std::string& to) {
                       const std::string* const s = std::get_if<std::string>(&value);
                       if (s) to = *s;
                       return s != nullptr;
                     });
}

std::string Options::get_choice(std::string_view key, const std::string& default_value,
                                const std::vector<std::string>& choices) const {
  std::string message = "expected one of " + joined(choices);
  if (const auto it = state_->given.find(key); it != state_->given.end())
    if (const std::string* const s = std::get_if<std::string>(&it->second.value))
      message += suggestion(*s, choices);
  return state_->get(key, default_value, message, [&](const OptionValue& value, std::string& to) {
    const std::string* const s = std::get_if<std::string>(&value);
    if (s) to = *s;
    return s && std::find(choices.begin(), choices.end(), *s) != choices.end();
  });
}

std::vector<int64_t> Options::get_ints(std::string_view key,
                                       const std::vector<int64_t>& default_value) const {
  return state_->get(key, default_value, "expected an integer or a list of integers",
                     [](const OptionValue& value, std::vector<int64_t>& to) {
                       if (const auto* const list = std::get_if<std::vector<int64_t>>(&value)) {
                         to = *list;
                         return true;
                       }
                       if (const int64_t* const i = std::get_if<int64_t>(&value)) {
                         to = {*i};
                         return true;
                       }
                       // The element type of an empty list is unknown.
                       const auto* const texts = std::get_if<std::vector<std::string>>(&value);
                       if (!texts || !texts->empty()) return false;
                       to.clear();
                       return true;
                     });
}

std::vector<std::string> Options::get_choices(std::string_view key,
                                              const std::vector<std::string>& default_value,
                                              const std::vector<std::string>& choices) const {
  const auto is_choice = [&](const std::string& word) {
    return std::find(choices.begin(), choices.end(), word) != choices.end();
  };
  std::string message = "expected one of " + joined(choices) + ", or a list of them";
  if (const auto it = state_->given.find(key); it != state_->given.end()) {
    std::vector<std::string> words;
    if (const auto* const list = std::get_if<std::vector<std::string>>(&it->second.value))
      words = *list;
    else if (const auto* const word = std::get_if<std::string>(&it->second.value))
      words = {*word};
    const auto wrong = std::find_if_not(words.begin(), words.end(), is_choice);
    if (wrong != words.end()) message += suggestion(*wrong, choices);
  }
  return state_->get(key, default_value, message,
                     [&](const OptionValue& value, std::vector<std::string>& to) {
                       if (const auto* const list = std::get_if<std::vector<std::string>>(&value))
                         to = *list;
                       else if (const auto* const word = std::get_if<std::string>(&value))
                         to = {*word};
                       else
                         return false;
                       return !to.empty() && std::all_of(to.begin(), to.end(), is_choice);
                     });
}

void Options::require(bool ok, std::string_view key, const std::string& message) const {
  if (!ok) state_->refuse(key, message);
}

void Options::check_all_read() const {
  std::vector<std::string> known;
  for (const auto& [key, value] : state_->read) known.push_back(key);
  check_known(known);
}

void Options::check_known(const std::vector<std::string>& known) const {
  for (const auto& [key, given] : state_->given) {
    if (given.optional || std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string hint = suggestion(key, known);
    if (hint.empty())
      hint = known.empty() ? "; this section has no options" : "; known options: " + joined(known);
    throw ConfigError(state_->name(key) + ": unknown option" + hint);
  }
}

std::map<std::string, OptionValue> Options::effective() const {
  return {state_->read.begin(), state_->read.end()};
}

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  // Insertions, deletions, substitutions and swaps of neighbours count one each.
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

}  // namespace longhand

#include "longhand/train/config/toml.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "longhand/core/error.h"
#include "longhand/data/file.h"

namespace longhand::train {
namespace {

std::string place(const std::string& name, const toml::source_region& source) {
  return concat_message(name, ":", source.begin.line, ":", source.begin.column);
}

template <class T>
OptionValue list_of(const toml::array& array) {
  std::vector<T> values;
  for (const auto& item : array) values.push_back(*item.value<T>());
  return values;
}

std::optional<OptionValue> to_option(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return OptionValue(value->get());
  if (const auto* value = node.as_integer()) return OptionValue(value->get());
  if (const auto* value = node.as_floating_point()) return OptionValue(value->get());
  if (const auto* value = node.as_string()) return OptionValue(value->get());
  const auto* array = node.as_array();
  if (!array) return std::nullopt;
  if (array->empty() || array->is_homogeneous<int64_t>()) return list_of<int64_t>(*array);
  if (array->is_homogeneous<std::string>()) return list_of<std::string>(*array);
  return std::nullopt;
}

TomlValue plain(const toml::node& node, const std::string& name, std::string where) {
  TomlValue value{.where = std::move(where),
                  .is_table = node.is_table(),
                  .is_list = node.is_array(),
                  .option = to_option(node)};
  if (const auto* const table = node.as_table())
    for (const auto& [key, each] : *table)
      value.entries.emplace_back(key.str(), plain(each, name, place(name, key.source())));
  if (const auto* const array = node.as_array())
    for (const auto& each : *array)
      value.items.push_back(plain(each, name, place(name, each.source())));
  return value;
}

/// Throws ConfigError for keys with very many parts, such as a.a.a.a: toml++ limits the nesting of
/// brackets but not of such keys, and tables are read and destroyed recursively.
void check_keys(std::string_view text, const std::string& name) {
  constexpr int most_parts = 16;
  int parts = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.') {
      check<ConfigError>(
          ++parts <= most_parts, name, ":",
          1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(i), '\n'),
          ": a key of more than ", most_parts, " parts");
    } else if (c == '#') {
      i = std::min(text.find('\n', i), text.size()) - 1;
    } else if (c == '"' || c == '\'') {
      const std::string quote(text.substr(i, 3) == std::string(3, c) ? 3 : 1, c);
      for (i += quote.size(); i < text.size() && text.substr(i, quote.size()) != quote; ++i)
        if (c == '"' && text[i] == '\\') ++i;
      i += quote.size() - 1;
      // Text in triple quotes may end with up to two quotes of its own.
      for (int own = 0; own < 2 && quote.size() == 3 && i + 1 < text.size() && text[i + 1] == c;
           ++own)
        ++i;
    } else if (std::string_view("\n=,[]{}").find(c) != std::string_view::npos) {
      parts = 1;
    }
  }
}

}  // namespace

const TomlValue* TomlValue::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

TomlValue parse_toml(std::string_view text, const std::string& name) {
  check_keys(text, name);
  try {
    return plain(toml::parse(text), name, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(concat_message(place(name, error.source()), ": ", error.description()));
  }
}

OptionValue parse_option(const std::string& text) {
  try {
    const toml::table table = toml::parse("v = " + text);
    // More than one key: the text contains a newline and is not a value.
    if (table.size() == 1)
      if (const auto value = to_option(*table.get("v"))) return *value;
  } catch (const toml::parse_error&) {
    // Unquoted text, such as a path.
  }
  return text;
}

std::string read_toml(const std::filesystem::path& path) {
  std::error_code ignored;
  check<ConfigError>(!std::filesystem::is_directory(path, ignored), "cannot read ", path.string(),
                     ": expected a TOML file, got a folder");
  std::ifstream in(path, std::ios::binary);
  check<ConfigError>(in.is_open(), "cannot read ", path.string(), ": ", data::system_reason());
  // Pipes are also read: a shell's <(command). Devices never end.
  constexpr size_t largest = size_t{16} << 20;
  std::string text;
  for (std::array<char, 4096> part{}; text.size() <= largest && !in.eof();) {
    in.read(part.data(), part.size());
    check<ConfigError>(!in.bad(), "cannot read ", path.string());
    text.append(part.data(), static_cast<size_t>(in.gcount()));
  }
  check<ConfigError>(text.size() <= largest, path.string(), ": expected a TOML file of at most ",
                     largest >> 20, " MiB");
  return text;
}

}  // namespace longhand::train

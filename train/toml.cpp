#include "longhand/train/toml.h"

#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

std::string place(const std::string& name, const toml::source_region& source) {
  return concat_message(name, ":", source.begin.line, ":", source.begin.column);
}

std::optional<OptionValue> to_option(const toml::node& node) {
  if (const auto* value = node.as_boolean()) return OptionValue(value->get());
  if (const auto* value = node.as_integer()) return OptionValue(value->get());
  if (const auto* value = node.as_floating_point()) return OptionValue(value->get());
  if (const auto* value = node.as_string()) return OptionValue(value->get());
  const auto* array = node.as_array();
  if (!array) return std::nullopt;
  if (array->empty() || array->is_homogeneous<int64_t>()) {
    std::vector<int64_t> values;
    for (const auto& item : *array) values.push_back(item.as_integer()->get());
    return OptionValue(std::move(values));
  }
  if (array->is_homogeneous<std::string>()) {
    std::vector<std::string> values;
    for (const auto& item : *array) values.push_back(item.as_string()->get());
    return OptionValue(std::move(values));
  }
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

}  // namespace

const TomlValue* TomlValue::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}

TomlValue parse_toml(std::string_view text, const std::string& name) {
  try {
    return plain(toml::parse(text), name, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(concat_message(place(name, error.source()), ": ", error.description()));
  }
}

OptionValue parse_option(const std::string& text) {
  try {
    const toml::table table = toml::parse("v = " + text);
    // More than one key: the text contains a line end and is not a value.
    if (table.size() == 1)
      if (const auto value = to_option(*table.get("v"))) return *value;
  } catch (const toml::parse_error&) {
    // Text without quotes, such as a path.
  }
  return text;
}

std::string read_toml(const std::filesystem::path& path) {
  std::error_code ignored;
  check<ConfigError>(!std::filesystem::is_directory(path, ignored), "cannot read ", path.string(),
                     ": expected a TOML file, got a folder");
  std::ifstream in(path, std::ios::binary);
  check<ConfigError>(in.is_open(), "cannot read ", path.string(), ": ", std::strerror(errno));
  std::string text{std::istreambuf_iterator<char>(in), {}};
  check<ConfigError>(!in.bad(), "cannot read ", path.string());
  return text;
}

}  // namespace longhand::train

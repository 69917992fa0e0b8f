#include "longhand/train/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "longhand/core/error.h"

namespace longhand::train {
namespace {

const std::vector<std::string> section_names = {"model", "attention", "data", "train", "optimizer"};

/// The option of a section that selects its other options; empty if there is none.
std::string selector(std::string_view section) {
  if (section == "attention" || section == "optimizer") return "type";
  if (section == "data") return "task";
  return "";
}

std::string hint(std::string_view name) {
  const std::string near = nearest(name, section_names);
  return near.empty() ? "; expected [model], [attention], [data], [train] or [optimizer]"
                      : "; did you mean [" + near + "]?";
}

size_t section_index(std::string_view name, const std::string& where) {
  const auto found = std::find(section_names.begin(), section_names.end(), name);
  check<ConfigError>(found != section_names.end(), where, ": unknown section [", name, "]",
                     hint(name));
  return static_cast<size_t>(found - section_names.begin());
}

std::string place(const std::string& name, const toml::source_region& source) {
  return concat_message(name, ":", source.begin.line, ":", source.begin.column);
}

/// The value as an option, or nothing for types that options do not have: dates, tables, other lists.
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

toml::table parse_toml(std::string_view text, const std::string& name) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    throw ConfigError(concat_message(place(name, error.source()), ": ", error.description()));
  }
}

/// Whether the key is the index of a layer, as in [attention.1].
bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
}

/// A value as given on a command line: TOML, or else text without quotes.
OptionValue parse_value(const std::string& text) {
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

}  // namespace

Config::Config()
    : sections_{Options("model"), Options("attention"), Options("data"), Options("train"),
                Options("optimizer")} {}

Config Config::load(const std::filesystem::path& path) {
  std::error_code ignored;
  check<ConfigError>(!std::filesystem::is_directory(path, ignored), "cannot read ", path.string(),
                     ": expected a TOML file, got a folder");
  std::ifstream in(path, std::ios::binary);
  check<ConfigError>(in.is_open(), "cannot read ", path.string(), ": ", std::strerror(errno));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  check<ConfigError>(!in.bad(), "cannot read ", path.string());
  return parse(text, path.string());
}

Config Config::parse(std::string_view text, const std::string& name) {
  const toml::table root = parse_toml(text, name);
  Config config;
  for (const auto& [section_key, node] : root) {
    const std::string where = place(name, section_key.source());
    const auto* table = node.as_table();
    check<ConfigError>(table, where, ": ", section_key.str(),
                       " is outside of a section, such as [model]");
    const size_t section = section_index(section_key.str(), where);
    const auto give = [&](const std::string& key, const toml::node& value, const std::string& at) {
      auto option = to_option(value);
      check<ConfigError>(option.has_value(), at, ": ", section_key.str(), ".", key,
                         ": expected true or false, a number, text, or a list of integers or of "
                         "strings");
      config.sections_[section].set(key, std::move(*option), at);
      config.from_file_[section].insert(key);
    };
    for (const auto& [key, value] : *table) {
      const auto* const layer = value.as_table();
      if (section_key.str() == "attention" && layer && is_number(key.str())) {
        for (const auto& [layer_key, layer_value] : *layer)
          give(concat_message(key.str(), ".", layer_key.str()), layer_value,
               place(name, layer_key.source()));
        continue;
      }
      give(std::string(key.str()), value, place(name, key.source()));
    }
  }
  return config;
}

void Config::assign(std::string_view assignment, const std::string& source) {
  const auto equals = assignment.find('=');
  const auto dot = assignment.substr(0, equals).find('.');
  check<ConfigError>(equals != std::string_view::npos && dot != std::string_view::npos && dot > 0 &&
                         dot + 1 < equals,
                     source, " ", assignment, ": expected section.key=value");
  assign(std::string(assignment.substr(0, dot)),
         std::string(assignment.substr(dot + 1, equals - dot - 1)),
         parse_value(std::string(assignment.substr(equals + 1))), source);
}

void Config::assign(const std::string& section, const std::string& key, OptionValue value,
                    const std::string& source) {
  const size_t index = section_index(section, source);
  Options& options = sections_[index];
  if (key == selector(section)) {
    const Options::Given* const before = options.find(key);
    if (!before || before->value != value)
      for (const std::string& name : from_file_[index])
        if (const Options::Given* const given = options.find(name); given && name != key)
          options.set(name, given->value, given->where, true);
  }
  options.set(key, std::move(value), source);
  from_file_[index].erase(key);
}

void Config::erase(const std::string& section, const std::string& key) {
  const size_t index = section_index(section, "config");
  sections_[index].erase(key);
  from_file_[index].erase(key);
}

Options& Config::section(std::string_view name) { return sections_[section_index(name, "config")]; }

const Options& Config::section(std::string_view name) const {
  return sections_[section_index(name, "config")];
}

std::map<std::string, OptionValue> Config::given() const {
  std::map<std::string, OptionValue> all;
  for (const Options& section : sections_)
    for (const std::string& key : section.keys())
      all[section.section() + "." + key] = section.find(key)->value;
  return all;
}

std::vector<std::string> Config::ignored(const EffectiveSections& effective) const {
  std::vector<std::string> names;
  for (const Options& section : sections_) {
    std::set<std::string> taken;
    if (const auto values = effective.find(section.section()); values != effective.end())
      for (const auto& [key, value] : values->second)
        // What a layer does not set itself, as "1.window", it takes from the section.
        if (value.given) taken.insert(section.has(key) ? key : key.substr(key.find('.') + 1));
    for (const std::string& key : section.keys())
      if (section.is_optional(key) && !taken.contains(key))
        names.push_back(section.section() + "." + key);
  }
  return names;
}

std::string to_toml(const EffectiveSections& effective) {
  std::string out;
  for (const std::string& section : section_names) {
    out += concat_message(out.empty() ? "" : "\n", "[", section, "]\n");
    if (const auto values = effective.find(section); values != effective.end())
      for (const auto& [key, value] : values->second)
        out += concat_message(key, " = ", to_string(value.value), "\n");
  }
  return out;
}

}  // namespace longhand::train

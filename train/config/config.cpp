#include "longhand/train/config/config.h"

#include <algorithm>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/lines.h"
#include "longhand/train/config/toml.h"

namespace longhand::train {
namespace {

const std::vector<std::string> section_names = {"model", "attention", "data", "train", "optimizer"};

/// Returns the option of a section that selects its other options; empty if there is none.
std::string selector(std::string_view section) {
  if (section == "attention" || section == "optimizer") return "type";
  if (section == "data") return "task";
  return "";
}

/// Returns what decides which options of [data] apply to a path: none, a folder, or the extension.
std::string kind_of_path(const OptionValue& value) {
  const std::string* const text = std::get_if<std::string>(&value);
  if (!text || text->empty()) return "";
  const std::filesystem::path path = *text;
  if (data::is_folder(path)) return "folder";
  return "file " + path.extension().string();
}

size_t section_index(std::string_view name, const std::string& where) {
  const auto found = std::ranges::find(section_names, name);
  const std::string near = nearest(name, section_names);
  check<ConfigError>(found != section_names.end(), where, ": unknown section [", name, "]",
                     near.empty()
                         ? "; expected [model], [attention], [data], [train] or [optimizer]"
                         : "; did you mean [" + near + "]?");
  return static_cast<size_t>(found - section_names.begin());
}

/// Returns whether the key is the index of a layer, as in [attention.1].
bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
}

}  // namespace

Config Config::load(const std::filesystem::path& path) {
  return parse(read_toml(path), path.string());
}

Config Config::parse(std::string_view text, const std::string& name,
                     const std::set<std::string>& without) {
  Config config;
  for (const auto& [section_key, table] : parse_toml(text, name).entries) {
    if (without.contains(section_key)) continue;
    check<ConfigError>(table.is_table, table.where, ": ", section_key,
                       " is outside of a section, such as [model]");
    const size_t section = section_index(section_key, table.where);
    const auto give = [&, &in = section_key](const std::string& key, const TomlValue& value) {
      check<ConfigError>(value.option.has_value(), value.where, ": ", in, ".", key,
                         ": expected true or false, a number, text, or a list of integers or of "
                         "strings");
      config.sections_[section].set(key, *value.option, value.where);
      config.from_file_[section].insert(key);
    };
    for (const auto& [key, value] : table.entries) {
      if (section_key == "attention" && value.is_table && is_number(key)) {
        for (const auto& [layer_key, layer_value] : value.entries)
          give(concat_message(key, ".", layer_key), layer_value);
        continue;
      }
      give(key, value);
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
         parse_option(std::string(assignment.substr(equals + 1))), source);
}

void Config::assign(const std::string& section, const std::string& key, OptionValue value,
                    const std::string& source) {
  const size_t index = section_index(section, source);
  Options& options = sections_[index];
  const auto make_optional = [&](size_t of) {
    for (const std::string& name : from_file_[of])
      if (const Options::Given* const given = sections_[of].find(name);
          given && (of != index || (name != key && name != selector(section))))
        sections_[of].set(name, given->value, given->where, true);
  };
  const bool is_path = section == "data" && key == "path";
  if (key == selector(section) || is_path) {
    const Options::Given* const before = options.find(key);
    const bool changes = is_path ? before && kind_of_path(before->value) != kind_of_path(value)
                                 : !before || before->value != value;
    if (changes) make_optional(index);
  }
  // A model that predicts tokens has no pooling.
  if (section == "data" && key == "masked") make_optional(section_index("model", source));
  options.set(key, std::move(value), source);
  from_file_[index].erase(key);
}

void Config::erase(const std::string& section, const std::string& key) {
  const size_t index = section_index(section, "config");
  sections_[index].erase(key);
  from_file_[index].erase(key);
}

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
        // Options that a layer does not set itself, as "1.window", come from the section.
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

std::string absolute_path(const std::filesystem::path& path) {
  const std::filesystem::path out = std::filesystem::absolute(path).lexically_normal();
  return (out.has_filename() ? out : out.parent_path()).string();
}

}  // namespace longhand::train

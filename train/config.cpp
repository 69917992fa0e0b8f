#include "longhand/train/config.h"

#include <algorithm>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/toml.h"

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

/// Whether the key is the index of a layer, as in [attention.1].
bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return '0' <= c && c <= '9'; });
}

}  // namespace

Config::Config()
    : sections_{Options("model"), Options("attention"), Options("data"), Options("train"),
                Options("optimizer")} {}

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
      config.give(section, key, {*value.option, value.where, true, false});
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
  auto& given = given_[index];
  if (key == selector(section)) {
    const auto before = given.find(key);
    if (before == given.end() || before->second.value != value)
      for (auto& [name, option] : given)
        if (option.from_file && name != key) {
          option.optional = true;
          give(index, name, option);
        }
  }
  give(index, key, {std::move(value), source, false, false});
}

void Config::erase(const std::string& section, const std::string& key) {
  const size_t index = section_index(section, "config");
  sections_[index].erase(key);
  given_[index].erase(key);
}

void Config::give(size_t section, const std::string& key, Given given) {
  sections_[section].set(key, given.value, given.where, given.optional);
  given_[section][key] = std::move(given);
}

Options& Config::section(std::string_view name) { return sections_[section_index(name, "config")]; }

const Options& Config::section(std::string_view name) const {
  return sections_[section_index(name, "config")];
}

std::map<std::string, OptionValue> Config::given() const {
  std::map<std::string, OptionValue> all;
  for (size_t i = 0; i < sections_.size(); ++i)
    for (const auto& [key, given] : given_[i]) all[section_names[i] + "." + key] = given.value;
  return all;
}

void Config::check_all_read() const {
  for (const Options& section : sections_) section.check_all_read();
}

std::vector<std::string> Config::ignored() const {
  std::vector<std::string> names;
  for (size_t i = 0; i < sections_.size(); ++i) {
    const auto effective = sections_[i].effective();
    for (const auto& [key, given] : given_[i])
      // If it was set and read, or taken over, it was used; if it did not fit, it is no longer set.
      if (given.optional &&
          (!sections_[i].has(key) || (sections_[i].is_optional(key) && !effective.contains(key))))
        names.push_back(section_names[i] + "." + key);
  }
  return names;
}

Config Config::unread() const {
  Config config;
  for (size_t i = 0; i < sections_.size(); ++i)
    for (const auto& [key, given] : given_[i]) config.give(i, key, given);
  return config;
}

std::string Config::to_toml(const std::set<std::string>& without) const {
  std::string out;
  for (size_t i = 0; i < sections_.size(); ++i) {
    out += concat_message(out.empty() ? "" : "\n", "[", section_names[i], "]\n");
    for (const auto& [key, value] : sections_[i].effective())
      if (!without.contains(section_names[i] + "." + key))
        out += concat_message(key, " = ", to_string(value), "\n");
  }
  return out;
}

}  // namespace longhand::train

// TOML: documents as plain values with locations. Only toml.cpp uses toml++.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/core/options.h"

namespace longhand::train {

/// A value of a document: a table, a list, or a possible option value.
struct TomlValue {
  std::string where;  // "config.toml:12:3": of a table's key, otherwise of the value
  bool is_table = false, is_list = false;
  /// The value as an option; nothing for types that no option has: dates, tables, and lists of
  /// anything but integers or strings. A list may have both this and `items`.
  std::optional<OptionValue> option{};
  std::vector<std::pair<std::string, TomlValue>> entries{};  // of a table, alphabetical
  std::vector<TomlValue> items{};                            // of a list

  /// Returns the value of a key; null if this is not a table or lacks the key.
  const TomlValue* find(std::string_view key) const;
};

/// Parses a document into a table; `name` is its name in errors. Throws ConfigError with line and
/// column.
TomlValue parse_toml(std::string_view text, const std::string& name);

/// Parses a command line value as TOML, or else as unquoted text.
OptionValue parse_option(const std::string& text);

/// Returns the contents of a TOML file. Throws ConfigError if it cannot be read.
std::string read_toml(const std::filesystem::path& path);

}  // namespace longhand::train

// TOML: a document as plain values with their locations. toml.cpp is the only file that uses toml++.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "longhand/core/options.h"

namespace longhand::train {

/// A value of a document: a table, a list, or a value that an option may have.
struct TomlValue {
  std::string where;  // "config.toml:12:3": of the key in a table, otherwise of the value
  bool is_table = false, is_list = false;
  /// The value as an option; nothing for types that options do not have: dates, tables, lists of
  /// anything else than integers or strings. A list may have both this and `items`.
  std::optional<OptionValue> option{};
  std::vector<std::pair<std::string, TomlValue>> entries{};  // of a table, in alphabetical order
  std::vector<TomlValue> items{};                            // of a list

  /// The value of a key; null if this is not a table or has no such key.
  const TomlValue* find(std::string_view key) const;
};

/// Parses a document, which is a table; `name` is its name in errors. Throws ConfigError with line
/// and column.
TomlValue parse_toml(std::string_view text, const std::string& name);

/// A value as given on a command line: TOML, or else text without quotes.
OptionValue parse_option(const std::string& text);

/// The contents of a TOML file. Throws ConfigError if it cannot be read.
std::string read_toml(const std::filesystem::path& path);

}  // namespace longhand::train

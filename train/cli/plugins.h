// --plugin and LONGHAND_PLUGINS.
#pragma once

#include <string>
#include <vector>

namespace longhand::cli {

/// The environment variable that lists plugin files, separated by colons.
inline constexpr const char* plugins_variable = "LONGHAND_PLUGINS";

/// Loads the plugins listed in LONGHAND_PLUGINS, then these, and sets LONGHAND_PLUGINS to all of
/// them, with absolute paths, so that child processes load them too. Throws as train::load_plugin()
/// does.
void load_plugins(const std::vector<std::string>& files);

/// Returns " --plugin FILE" for each loaded plugin, to repeat a command.
std::string plugin_flags();

}  // namespace longhand::cli

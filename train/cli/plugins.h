// --plugin and LONGHAND_PLUGINS.
#pragma once

#include <string>
#include <vector>

namespace longhand::cli {

/// The environment variable with files of plugins, separated by colons.
inline constexpr const char* plugins_variable = "LONGHAND_PLUGINS";

/// Loads the plugins that LONGHAND_PLUGINS names, then these, and sets LONGHAND_PLUGINS to all of them,
/// with absolute paths, so that the processes that this one starts load them too. Throws as
/// train::load_plugin() does.
void load_plugins(const std::vector<std::string>& files);

/// " --plugin FILE" for each plugin that is loaded, to repeat a command.
std::string plugin_flags();

}  // namespace longhand::cli

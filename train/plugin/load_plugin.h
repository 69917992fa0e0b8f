// Loading plugins (train/plugin/plugin.h), and what runs record about them.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

namespace longhand::train {

class Config;

/// A plugin as recorded in checkpoints and summaries.
struct PluginRecord {
  std::string name, version;
  std::string digest;                        // XXH3-128 of the file
  std::vector<std::string> variants, tasks;  // registered by the plugin

  friend bool operator==(const PluginRecord&, const PluginRecord&) = default;
};

struct Plugin : PluginRecord {
  std::filesystem::path file;  // absolute
};

/// Loads the plugin that LONGHAND_PLUGIN defines in a shared library and registers its variants and
/// tasks, until the end of the process. A plugin is code and runs with the rights of this process.
/// Does nothing if it is already loaded. Throws ConfigError, before calling its code, if the file
/// is missing, is not a plugin, or was compiled with an incompatible Longhand; also if it registers
/// nothing, a name that is taken, or a name with characters other than a-z, 0-9 and _.
const Plugin& load_plugin(const std::filesystem::path& path);

/// Returns the loaded plugins, in loading order.
const std::deque<Plugin>& plugins();

/// Returns the plugins in `all` whose variants or tasks a configuration names.
std::vector<PluginRecord> used_plugins(const std::vector<PluginRecord>& all, const Config& config);
/// Likewise for plugins().
std::vector<PluginRecord> used_plugins(const Config& config);

/// Throws ConfigError if a checkpoint's `config` names a variant or task of a recorded plugin that
/// is not loaded; the message names the plugin and says how to load it. Returns a warning if it is
/// loaded from a different file; otherwise an empty string.
std::string check_plugins(const std::vector<PluginRecord>& recorded, const Config& config,
                          const std::string& checkpoint);

/// Formats records as text, one line each, as in checkpoints. Names and versions contain no control
/// characters.
std::string to_text(const std::vector<PluginRecord>& records);
/// Reads to_text(). Throws a DataError that begins with `name` for malformed text.
std::vector<PluginRecord> plugin_records(const std::string& text, const std::string& name);

}  // namespace longhand::train

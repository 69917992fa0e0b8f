// Loading plugins (train/plugin/plugin.h), and what runs record about them.
#pragma once

#include <deque>
#include <filesystem>
#include <string>
#include <vector>

namespace longhand::train {

class Config;

/// A plugin as checkpoints and summaries record it.
struct PluginRecord {
  std::string name, version;
  std::string digest;                        // XXH3-128 of its file
  std::vector<std::string> variants, tasks;  // that it has registered

  friend bool operator==(const PluginRecord&, const PluginRecord&) = default;
};

struct Plugin : PluginRecord {
  std::filesystem::path file;  // absolute
};

/// Loads a shared library that LONGHAND_PLUGIN defines a plugin in, which registers its variants and
/// tasks; until the end of the process. A plugin is code: it runs with the rights of this process. Does
/// nothing if it is loaded already. Throws ConfigError, before anything of the plugin is called, if the
/// file is missing or no plugin, or was compiled with a Longhand that this one cannot replace; and if it
/// registers nothing, a name that is taken, or a name of other characters than a-z, 0-9 and _.
const Plugin& load_plugin(const std::filesystem::path& path);

/// The plugins that are loaded, in order.
const std::deque<Plugin>& plugins();

/// Of these plugins, those whose variants or tasks a configuration names.
std::vector<PluginRecord> used_plugins(const std::vector<PluginRecord>& all, const Config& config);
/// The same of plugins().
std::vector<PluginRecord> used_plugins(const Config& config);

/// Throws ConfigError if `config`, which is that of a checkpoint, names a variant or task of a recorded
/// plugin that is not loaded; the message names the plugin and says how to load it. Returns a warning if
/// it is loaded, but its file is not the same; otherwise an empty string.
std::string check_plugins(const std::vector<PluginRecord>& recorded, const Config& config,
                          const std::string& checkpoint);

/// The records as text, one line each, as checkpoints hold them. Names and versions have no control
/// characters.
std::string to_text(const std::vector<PluginRecord>& records);
/// Reads to_text(). Throws DataError that begins with `name` for text of another form.
std::vector<PluginRecord> plugin_records(const std::string& text, const std::string& name);

}  // namespace longhand::train

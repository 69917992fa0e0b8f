#include "longhand/train/cli/plugins.h"

#include <cstdlib>

#include "longhand/core/error.h"
#include "longhand/core/options.h"
#include "longhand/train/cli/common.h"
#include "longhand/train/plugin/load_plugin.h"

namespace longhand::cli {

void load_plugins(const std::vector<std::string>& files) {
  if (const char* const value = std::getenv(plugins_variable)) {
    for (const std::string& name : split_at(value, ':')) {
      if (name.empty()) continue;
      try {
        train::load_plugin(name);
      } catch (const ConfigError& error) {
        throw ConfigError(concat_message(plugins_variable, ": ", error.what()));
      }
    }
  }
  for (const std::string& file : files) {
    check<ConfigError>(file.find(':') == std::string::npos, "--plugin ", file,
                       ": expected a path without colons, which separate those of ",
                       plugins_variable);
    train::load_plugin(file);
  }
  std::string all;
  for (const train::Plugin& plugin : train::plugins())
    all += (all.empty() ? "" : ":") + plugin.file.string();
  if (!all.empty()) setenv(plugins_variable, all.c_str(), /*overwrite=*/1);
}

std::string plugin_flags() {
  std::string out;
  for (const train::Plugin& plugin : train::plugins())
    out += " --plugin " + shell_word(plugin.file.string());
  return out;
}

}  // namespace longhand::cli

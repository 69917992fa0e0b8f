#include "longhand/train/plugin/load_plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/core/demangle.hpp>
#include <cstring>
#include <span>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <variant>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/config/config.h"
#include "longhand/train/plugin/plugin.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* remedy =
    "; build the plugin again with the headers of this Longhand (see longhand_add_plugin() of its "
    "CMake package)";

/// Returns whether plugins find the library here: whether the linker knows one of its symbols.
bool exports_library() {
  return dlsym(RTLD_DEFAULT, concat_message("_ZTI", typeid(Error).name()).c_str()) != nullptr;
}

constexpr const char* remedy_for_program =
    "; this program does not export the library to plugins: link it with longhand_add_program() of "
    "Longhand's CMake package, or load the plugin with the program longhand";

std::deque<Plugin>& loaded() {
  static std::deque<Plugin> all;
  return all;
}

/// Returns the dynamic linker's reason, with a missing function's name as in the source.
std::string linker_reason(const fs::path& file) {
  const char* const text = dlerror();
  std::string reason = text ? text : "unknown reason";
  if (reason.starts_with(file.string() + ": ")) reason.erase(0, file.string().size() + 2);
  const std::string_view before = "undefined symbol: ";
  if (const size_t at = reason.find(before); at != std::string::npos) {
    const size_t begin = at + before.size();
    const size_t end = std::min(reason.find_first_of(" ,", begin), reason.size());
    const std::string name = boost::core::demangle(reason.substr(begin, end - begin).c_str());
    reason.replace(begin, end - begin, name);
  }
  return reason;
}

/// Returns "0.1" for "0.1.0".
std::string_view minor_version(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

void check_built_for_this(const PluginInfo& info, const fs::path& file) {
  const auto must_be = [&](bool same, const char* what, const auto& theirs, const auto& ours) {
    check<ConfigError>(same, file.string(), ": the plugin was compiled with ", what, theirs,
                       ", expected ", ours, remedy);
  };
  must_be(info.interface == plugin_interface, "plugin interface ", info.interface,
          plugin_interface);
  must_be(minor_version(info.longhand) == minor_version(version()), "Longhand ", info.longhand,
          version());
  check<ConfigError>(info.layout == plugin_layout, file.string(),
                     ": the plugin was compiled with other headers than this Longhand ", version(),
                     ", or with another standard library: the sizes of their types differ", remedy);
}

/// Returns the names added since there were `before`.
std::vector<std::string> added(const std::vector<std::string>& names, size_t before,
                               const fs::path& file) {
  std::vector<std::string> out(names.begin() + static_cast<std::ptrdiff_t>(before), names.end());
  for (const std::string& name : out)
    check<ConfigError>(
        !name.empty() &&
            name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos,
        file.string(), ": the plugin registers the name \"", name,
        "\"; expected the characters a-z, 0-9 and _");
  return out;
}

/// Throws ConfigError if a shared library is truncated: the linker would map what is missing, and
/// touching it would end this process with SIGBUS. It rejects other files with a reason.
void check_complete(std::span<const std::byte> bytes, const fs::path& file) {
  const auto fits = [&](uint64_t begin, uint64_t size) {
    check<ConfigError>(begin <= bytes.size() && size <= bytes.size() - begin, file.string(),
                       ": the plugin is cut off: it has ", bytes.size(),
                       " bytes, expected at least ", begin + size, remedy);
  };
  Elf64_Ehdr head{};
  if (bytes.size() < SELFMAG || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0) return;
  fits(0, sizeof head);
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(Elf64_Phdr)) return;
  fits(head.e_phoff, uint64_t{head.e_phnum} * sizeof(Elf64_Phdr));
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    std::memcpy(&part, bytes.data() + head.e_phoff + i * sizeof part, sizeof part);
    if (part.p_type == PT_LOAD) fits(part.p_offset, part.p_filesz);
  }
}

/// Returns the plugin's description of itself, after the checks; the library stays loaded.
const PluginInfo& open(const fs::path& file) {
  // With all functions that it needs: a missing one must not end a run.
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  const std::string reason = handle ? std::string() : linker_reason(file);
  // If one is missing, the plugin's description may say why.
  if (!handle) handle = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  const auto* const info =
      handle ? static_cast<const PluginInfo*>(dlsym(handle, "longhand_plugin")) : nullptr;
  if (info) check_built_for_this(*info, file);
  check<ConfigError>(reason.empty(), file.string(), ": cannot load the plugin: ", reason,
                     exports_library() ? remedy : remedy_for_program);
  check<ConfigError>(info != nullptr, file.string(),
                     " is not a Longhand plugin: it does not define longhand_plugin; see "
                     "LONGHAND_PLUGIN in longhand/train/plugin/plugin.h");
  return *info;
}

/// Returns how a configuration uses a plugin: attention.type = "mine"; empty if it does not.
std::string use_of(const PluginRecord& plugin, const Config& config) {
  const auto given = config.given();
  for (const auto& [option, names] :
       {std::pair{"attention.type", &plugin.variants}, {"data.task", &plugin.tasks}}) {
    const auto found = given.find(option);
    if (found == given.end()) continue;
    const auto* const one = std::get_if<std::string>(&found->second);
    const auto* const list = std::get_if<std::vector<std::string>>(&found->second);
    for (const std::string& name : *names)
      if ((one && *one == name) || (list && std::ranges::find(*list, name) != list->end()))
        return concat_message(option, " = \"", name, '"');
  }
  return "";
}

}  // namespace

const std::deque<Plugin>& plugins() { return loaded(); }

const Plugin& load_plugin(const fs::path& path) {
  const fs::path file = fs::absolute(path).lexically_normal();
  check<ConfigError>(fs::is_regular_file(file), path.string(),
                     fs::exists(file) ? " is not a file" : ": there is no such plugin");
  const std::vector<std::byte> bytes = data::read_file(file);
  const std::string digest = data::hex(data::digest(bytes));
  for (const Plugin& plugin : loaded())
    if (plugin.file == file || plugin.digest == digest) return plugin;

  check_complete(bytes, file);
  const PluginInfo& info = open(file);
  check<ConfigError>(info.name && info.version && info.add, file.string(),
                     ": the plugin has no name, no version or no function");
  Plugin plugin{{info.name, info.version, digest, {}, {}}, file};
  for (const std::string& text : {plugin.name, plugin.version})
    check<ConfigError>(
        !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; }),
        file.string(), ": expected printable ASCII without spaces as name and version, got \"",
        plugin.name, "\" and \"", plugin.version, '"');
  for (const Plugin& other : loaded())
    check<ConfigError>(other.name != plugin.name, file.string(), ": a plugin \"", plugin.name,
                       "\" is already loaded, from ", other.file.string());

  const size_t variants = attention::names().size(), tasks = data::task_names().size();
  try {
    info.add();
  } catch (const std::exception& error) {
    throw ConfigError(concat_message(file.string(), ": ", error.what()));
  }
  plugin.variants = added(attention::names(), variants, file);
  plugin.tasks = added(data::task_names(), tasks, file);
  check<ConfigError>(!plugin.variants.empty() || !plugin.tasks.empty(), file.string(),
                     ": the plugin registers no variant and no task; if it does call add(), it is "
                     "linked with a Longhand of its own",
                     remedy);
  return loaded().emplace_back(std::move(plugin));
}

std::vector<PluginRecord> used_plugins(const std::vector<PluginRecord>& all, const Config& config) {
  std::vector<PluginRecord> out = all;
  std::erase_if(out, [&](const PluginRecord& plugin) { return use_of(plugin, config).empty(); });
  return out;
}

std::vector<PluginRecord> used_plugins(const Config& config) {
  return used_plugins({loaded().begin(), loaded().end()}, config);
}

std::string check_plugins(const std::vector<PluginRecord>& recorded, const Config& config,
                          const std::string& checkpoint) {
  std::string warning;
  for (const PluginRecord& plugin : recorded) {
    const std::string what = use_of(plugin, config);
    if (what.empty()) continue;
    const auto now = std::ranges::find(loaded(), plugin.name, &Plugin::name);
    check<ConfigError>(now != loaded().end(), checkpoint, " has ", what, ", which the plugin \"",
                       plugin.name, "\" (version ", plugin.version, ", digest ", plugin.digest,
                       ") defines; that is not loaded: pass --plugin FILE.so, or name the file in "
                       "LONGHAND_PLUGINS");
    if (now->digest != plugin.digest)
      warning += concat_message(warning.empty() ? "" : "; ", "the plugin \"", plugin.name,
                                "\" is not the one that ", checkpoint, " was made with (version ",
                                plugin.version, ", digest ", plugin.digest, "; now version ",
                                now->version, ", digest ", now->digest, "): results may differ");
  }
  return warning;
}

std::string to_text(const std::vector<PluginRecord>& records) {
  std::string out;
  for (const PluginRecord& r : records)
    out += fmt::format("{}\t{}\t{}\t{}\t{}\n", r.name, r.version, r.digest,
                       fmt::join(r.variants, ","), fmt::join(r.tasks, ","));
  return out;
}

std::vector<PluginRecord> plugin_records(const std::string& text, const std::string& name) {
  std::vector<PluginRecord> out;
  for (const std::string& line : split_at(text, '\n')) {
    std::vector<std::string> parts = split_at(line, '\t');
    if (parts.size() == 4) parts.emplace_back();  // no tasks
    check<DataError>(parts.size() == 5, name, ": expected five fields for each plugin, got \"",
                     line, '"');
    out.push_back({parts[0], parts[1], parts[2], split_at(parts[3], ','), split_at(parts[4], ',')});
  }
  return out;
}

}  // namespace longhand::train

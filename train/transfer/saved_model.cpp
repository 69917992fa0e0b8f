#include "longhand/train/transfer/saved_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/train/plugin/load_plugin.h"

namespace longhand::train {
namespace {

namespace fs = std::filesystem;

/// Splits a checkpoint's name, "step-00000005" or "step-00000005.h5", into "step-" and 5; nothing
/// if it has another form.
std::optional<std::pair<std::string, int64_t>> numbered(std::string name) {
  if (name.ends_with(".h5")) name.resize(name.size() - 3);
  const size_t digits = name.find_last_not_of("0123456789") + 1;
  const auto number = parse_number<int64_t>(std::string_view(name).substr(digits));
  if (digits == 0 || !number) return std::nullopt;
  return std::pair(name.substr(0, digits), *number);
}

/// Returns whether options name the same file, one by a relative path, as earlier versions stored.
bool same_path(const OptionValue& a, const OptionValue& b) {
  const auto *const x = std::get_if<std::string>(&a), *const y = std::get_if<std::string>(&b);
  return x && y && absolute_path(*x) == absolute_path(*y);
}

}  // namespace

std::vector<fs::path> checkpoints_in(const fs::path& checkpoints) {
  std::vector<fs::path> out;
  if (!fs::is_directory(checkpoints)) return out;
  for (const auto& entry : fs::directory_iterator(checkpoints))
    if (const fs::path& file = entry.path();
        file.extension() == ".h5" && !file.filename().string().starts_with('.'))
      out.push_back(file);
  std::ranges::sort(out);  // the order of a directory is arbitrary
  return out;
}

std::vector<std::string> checkpoints_below(const std::string& all) {
  const fs::path directory = (fs::path(all) / "").parent_path();  // without a slash at its end
  check<ConfigError>(fs::is_directory(directory), "--all ", directory.string(),
                     ": expected a directory");
  const bool is_folder = fs::canonical(directory).filename() == "checkpoints";
  std::vector<std::string> out;
  const auto is_closed = [](const fs::path& path) {
    std::error_code error;
    const fs::directory_iterator opened(path, error);
    return bool(error);
  };
  if (is_closed(directory)) return {directory.string()};
  for (fs::recursive_directory_iterator entry(directory), end; entry != end; ++entry) {
    const fs::path& path = entry->path();
    // Hidden folders may be incomplete copies.
    if (path.filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
    } else if (!entry->is_symlink() && entry->is_directory() && is_closed(path)) {
      entry.disable_recursion_pending();
      out.push_back(path.string());
    }
    const fs::path folder = path.parent_path();
    const bool is_checkpoint =
        folder.filename() == "checkpoints" || (is_folder && folder == directory);
    if (is_checkpoint && path.extension() == ".h5" && !path.filename().string().starts_with('.'))
      out.push_back(path.string());
  }
  check<ConfigError>(!out.empty(), "--all ", directory.string(),
                     ": no folder named checkpoints with files *.h5 in it or below it");
  std::ranges::sort(out);
  return out;
}

fs::path find_checkpoint(const fs::path& run, const std::string& name) {
  if (fs::is_regular_file(run)) return run;
  check<ConfigError>(fs::is_directory(run), "no run directory ", run.string());
  const fs::path folder = run / "checkpoints";
  for (const std::string& file : {name, name + ".h5"})
    if (fs::is_regular_file(folder / file)) return folder / file;
  if (name == "best" && fs::is_regular_file(folder / "last.h5")) return folder / "last.h5";
  std::string found;
  for (const fs::path& file : checkpoints_in(folder)) {
    const std::string each = file.stem().string();
    if (const auto number = numbered(name); number && numbered(each) == number) return file;
    found += (found.empty() ? "" : ", ") + each;
  }
  throw ConfigError(concat_message(run.string(), " has no checkpoint \"", name, "\"; ",
                                   found.empty() ? "it has none yet" : "expected one of " + found));
}

void check_checkpoint_name(const fs::path& run, const std::string& name,
                           const std::string& option) {
  check<ConfigError>(name.empty() || name == "best" || !fs::is_regular_file(run), run.string(),
                     ": expected the directory of a run, because ", option, " is \"", name,
                     "\", got a single checkpoint; name the directory, or leave out ", option);
}

void SavedModel::check_paths(std::initializer_list<std::string_view> options,
                             const std::vector<std::string>* assignments) const {
  const fs::path folder = fs::absolute(file).parent_path();
  const fs::path beside = folder.parent_path() / "config.toml";
  std::optional<Config> of_run;
  if (folder.filename() == "checkpoints" && fs::is_regular_file(beside))
    of_run = Config::load(beside);
  for (const std::string_view option : options) {
    const std::string section(option.substr(0, option.find('.')));
    const std::string key(option.substr(section.size() + 1));
    const Options::Given* const given = config.section(section).find(key);
    if (!given || given->value == OptionValue(std::string())) continue;
    if (assignments && std::ranges::any_of(*assignments, [&](const auto& text) {
          return text.starts_with(concat_message(option, '='));
        }))
      continue;
    const Options::Given* const theirs = of_run ? of_run->section(section).find(key) : nullptr;
    if (theirs && (theirs->value == given->value || same_path(theirs->value, given->value)))
      continue;
    throw ConfigError(concat_message(
        file, " has ", option, " = ", to_string(given->value),
        ", which config.toml of its run directory does not; an untrusted checkpoint may name any "
        "file: pass --trust-paths to open it",
        assignments ? concat_message(", or --set ", option, "=PATH") : ""));
  }
}

std::string data_difference(const std::map<std::string, std::string>& then,
                            const std::map<std::string, std::string>& now, const std::string& file,
                            const Config& used) {
  for (const auto& [split, hash] : now) {
    const auto before = then.find(split);
    if (before == then.end() || before->second == hash) continue;
    std::string source = "of the task";
    if (const Options::Given* const path = used.data().find("path"))
      if (const auto* text = std::get_if<std::string>(&path->value); text && !text->empty())
        source = "in " + absolute_path(*text);
    return concat_message(file, " is from a run on other data: the ", split, " examples ", source,
                          " have the hash ", hash, ", expected ", before->second);
  }
  return "";
}

void SavedModel::check_data(const data::Task& task, const Config& used) const {
  if (accept_data) return;
  // This object's configuration may have been changed since.
  const Config trained = Config::parse(checkpoint.config, file);
  const auto options = [](const Config& from) {
    std::map<std::string, OptionValue> out = from.given();
    std::erase_if(out, [](const auto& option) { return !option.first.starts_with("data."); });
    return out;
  };
  if (options(used) != options(trained)) return;
  std::map<std::string, std::string> now;
  for (const std::string& split : task.splits())
    if (checkpoint.data.contains(split)) now[split] = task.split(split).fingerprint();
  const std::string difference = data_difference(checkpoint.data, now, file, trained);
  check<DataError>(difference.empty(), difference, data_remedy);
}

SavedModel load_model(const fs::path& run, const std::string& name) {
  check_checkpoint_name(run, name, "--checkpoint");
  const std::string file = find_checkpoint(run, name).string();
  Checkpoint checkpoint = load(file);
  Config config = Config::parse(checkpoint.config, file + ": config");  // which inspect prints
  check_plugins(checkpoint.plugins, config, file);
  return {file, std::move(checkpoint), std::move(config), stored_digest(file)};
}

}  // namespace longhand::train

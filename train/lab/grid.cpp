#include "longhand/train/lab/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/data/file.h"
#include "longhand/train/config/experiment.h"

namespace longhand::train {
namespace {

std::string last_word(const std::string& key) { return key.substr(key.rfind('.') + 1); }

const OptionValue* find(const Settings& values, const std::string& key) {
  const auto found = std::ranges::find(values, key, &Setting::key);
  return found == values.end() ? nullptr : &found->value;
}

/// Options added after the first sweeps, with the values that match programs without them.
constexpr std::string_view later_options[] = {
    "[model]\nembedding_norm = false", "[model]\nnorm_eps = 0.0", "[model]\ntargets = \"classes\"",
    "[data]\ntargets = \"classes\""};

/// Identifies the data in a folder or file on any machine: a digest of the names within the folder,
/// and the sizes and first bytes of the files. The path itself if it is missing or unreadable,
/// which the task that reads it will report.
std::string data_name(const std::filesystem::path& path) try {
  namespace fs = std::filesystem;
  std::set<fs::path> files;
  if (fs::is_directory(path)) {
    for (const auto& each : fs::recursive_directory_iterator(path))
      if (each.is_regular_file()) files.insert(each.path());
  } else if (fs::is_regular_file(path)) {
    files.insert(path);
  }
  if (files.empty()) return path.string();
  std::string text;
  for (const fs::path& file : files) {
    const data::RegularFile opened(file);
    std::string head(4096, '\0');
    opened.read(0, std::as_writable_bytes(
                       std::span(head).first(std::min<uint64_t>(opened.size(), head.size()))));
    text += concat_message(file.lexically_relative(path).string(), " ", opened.size(), " ",
                           data::text_digest(head), "\n");
  }
  return data::text_digest(text);
} catch (const std::filesystem::filesystem_error&) {
  return path.string();
} catch (const DataError&) {
  return path.string();
}

/// Returns the name of a cell with this effective configuration: a digest with data_name() in place
/// of the data's path, so that other machines find the cell, and without `later_options`, so that
/// later versions do. `data_names` caches results of data_name().
std::string cell_name(const std::string& config, std::map<std::string, std::string>& data_names) {
  constexpr std::string_view path_is = "path = \"";
  std::string section, text;
  for (std::string& line : split_at(config, '\n')) {
    if (line.starts_with('[')) section = line;
    if (section == "[data]" && line.starts_with(path_is)) {
      const std::string path = line.substr(path_is.size(), line.size() - path_is.size() - 1);
      const auto [name, is_new] = data_names.try_emplace(path);
      if (is_new) name->second = data_name(path);
      line.replace(path_is.size(), path.size(), name->second);
    }
    if (std::ranges::find(later_options, section + "\n" + line) == std::end(later_options))
      text += line + "\n";
  }
  return data::text_digest(text).substr(0, 16);
}

bool is_one_of(const OptionValue& value, const std::vector<OptionValue>& values) {
  return std::ranges::any_of(values,
                             [&](const OptionValue& each) { return same_value(value, each); });
}

bool has_key(const Axis& axis, const std::string& key) {
  return find(axis.points.front(), key) != nullptr;
}

/// Throws ConfigError if an axis has a condition on an option whose value is decided later.
void check_condition(const Sweep& sweep, size_t index) {
  const Axis& axis = sweep.axes[index];
  for (const auto& [key, expected] : axis.when) {
    for (size_t later = index + 1; later < sweep.axes.size(); ++later)
      check<ConfigError>(!has_key(sweep.axes[later], key), axis.where, ": when: ", key,
                         " is an option of the axis at ", sweep.axes[later].where,
                         "; expected one of an axis above: move this [[axis]] below that one");
    check<ConfigError>(!sweep.search || !has_key(sweep.search->axis, key), axis.where,
                       ": when: ", key,
                       " is the option of [search], which is chosen for each variant; expected an "
                       "option of the base or of an axis above");
  }
}

/// Throws the error of an axis whose condition holds for none of these combinations.
[[noreturn]] void fail_unused(const Axis& axis, const std::vector<Settings>& all,
                              const std::map<std::string, OptionValue>& base) {
  std::vector<std::string> lines;
  for (const auto& [key, expected] : axis.when) {
    std::set<std::string> found, wanted;
    for (const OptionValue& value : expected) wanted.insert(to_string(value));
    for (const Settings& values : all)
      if (const OptionValue* const value = find(values, key)) found.insert(to_string(*value));
    if (const auto given = base.find(key); found.empty() && given != base.end())
      found.insert(to_string(given->second));
    lines.push_back(fmt::format("{} = {}, but the values above are {}", key,
                                fmt::join(wanted, " or "), fmt::join(found, ", ")));
  }
  throw ConfigError(axis.where +
                    ": when holds for no cell: " + fmt::format("{}", fmt::join(lines, "; ")) +
                    "; expected a value above, or no such [[axis]]");
}

/// Returns whether the condition of an axis holds, given the options of the base.
bool holds(const Axis& axis, const Settings& values,
           const std::map<std::string, OptionValue>& base) {
  for (const auto& [key, expected] : axis.when) {
    const OptionValue* value = find(values, key);
    if (const auto given = base.find(key); !value && given != base.end()) value = &given->second;
    check<ConfigError>(
        value != nullptr, axis.where, ": when: ", key,
        " has no value; expected an option of the base or of an axis above this one");
    if (!is_one_of(*value, expected)) return false;
  }
  return true;
}

/// Returns the combined values of all axes, without repetitions.
std::vector<Settings> combinations(const Sweep& sweep) {
  constexpr size_t most = 100000;
  const std::map<std::string, OptionValue> base = sweep.config().given();
  std::vector<Settings> all{{}};
  for (size_t i = 0; i < sweep.axes.size(); ++i) {
    const Axis& axis = sweep.axes[i];
    check_condition(sweep, i);
    bool applies = false;
    std::vector<Settings> next;
    for (const Settings& values : all) {
      if (!holds(axis, values, base)) {
        next.push_back(values);
        continue;
      }
      applies = true;
      for (const Settings& point : axis.points) {
        Settings& more = next.emplace_back(values);
        for (const Setting& setting : point) {
          // The label would show both values.
          check<ConfigError>(!find(values, setting.key), setting.where, ": ", setting.key,
                             " is an option of an axis above this one, too");
          more.push_back(setting);
        }
      }
      check<ConfigError>(next.size() <= most, axis.where, ": more than ", most,
                         " combinations of values");
    }
    if (!applies) fail_unused(axis, all, base);
    all = std::move(next);
  }
  std::set<std::string> seen;
  std::erase_if(all, [&](const Settings& values) {
    std::string text;
    for (const Setting& setting : values)
      text += setting.key + "=" + to_string(setting.value) + "\n";
    return !seen.insert(text).second;
  });
  return all;
}

/// Returns the steps of a trial at which the search compares it with others: steps of evaluations.
std::vector<int64_t> rungs_of(const Search& search, const Config& config) {
  const TrainerOptions options = read_section<TrainSection>(config.train()).trainer;
  std::vector<int64_t> out;
  for (const double fraction : search.halving) {
    const int64_t every = options.eval_every;
    const auto steps = static_cast<int64_t>(fraction * static_cast<double>(options.steps));
    out.push_back(every > 0 ? steps / every * every : 0);
    check<ConfigError>(out.back() > 0, search.axis.where, ": search: halving = ", fraction, " of ",
                       options.steps, " steps, with train.eval_every = ", every,
                       ": trials are compared by their evaluations; expected one by then");
  }
  return out;
}

/// Completes a cell whose indices are set. `config`: the sweep's.
void configure(const Sweep& sweep, Config config, const SweepVariant& variant,
               const Settings& trial, std::map<std::string, std::string>& data_names,
               SweepCell& cell) {
  assign(config, variant.values);
  assign(config, trial);
  cell.seed = sweep.seeds[cell.nth_seed];
  config.assign("train", "seed", cell.seed, "seeds");
  if (!cell.final && sweep.search->steps > 0)
    config.assign("train", "steps", sweep.search->steps, "search");
  try {
    const auto* const targets = config.data().find("targets");
    check<ConfigError>(
        sweep.metric == "loss" || !targets || targets->value != OptionValue(std::string("numbers")),
        sweep.name,
        ": metric = \"accuracy\": with data.targets = \"numbers\" there is none; "
        "expected metric = \"loss\"");
    const auto task = read_task_info(config);
    cell.config = effective_config(config, task ? &*task : nullptr);
    if (!cell.final) cell.rungs = rungs_of(*sweep.search, config);
  } catch (const ConfigError& error) {
    throw ConfigError((variant.values.empty() ? "" : "variant " + variant.label + ": ") +
                      error.what());
  }
  cell.hash = cell_name(cell.config, data_names);
}

bool is_baseline(const Sweep& sweep, const SweepVariant& variant) {
  return std::ranges::all_of(sweep.baseline, [&](const auto& each) {
    const OptionValue* const value = find(variant.values, each.first);
    return value && is_one_of(*value, each.second);
  });
}

/// Assigns to each variant the baseline with the same values of the other axes.
void find_baselines(const Sweep& sweep, std::vector<SweepVariant>& variants) {
  if (sweep.baseline.empty()) return;
  std::vector<size_t> baselines;
  for (size_t i = 0; i < variants.size(); ++i)
    if (is_baseline(sweep, variants[i])) baselines.push_back(i);
  std::string text;
  for (const auto& [key, values] : sweep.baseline)
    text += (text.empty() ? "" : ", ") + key + " = " + to_string(values.front());
  check<ConfigError>(!baselines.empty(), sweep.name, ": no variant has the baseline's ", text);
  for (SweepVariant& variant : variants) {
    if (is_baseline(sweep, variant)) continue;
    std::vector<size_t> matching;
    for (const size_t i : baselines) {
      const bool matches = std::ranges::all_of(variants[i].values, [&](const Setting& setting) {
        const OptionValue* const own = find(variant.values, setting.key);
        return sweep.baseline.contains(setting.key) || !own || same_value(*own, setting.value);
      });
      if (matches) matching.push_back(i);
    }
    if (matching.empty()) continue;
    check<ConfigError>(matching.size() == 1, sweep.name, ": variant ", variant.label,
                       " has several baselines with ", text, ": ", variants[matching.front()].label,
                       " and ", variants[matching.back()].label,
                       "; expected a baseline that names one of them");
    variant.baseline = matching.front();
  }
}

/// Returns a value as shown in labels; only the last part of paths to other runs.
std::string shown(const Setting& setting) {
  const std::string text = plain_text(setting.value);
  if (!is_run_path(setting.key)) return text;
  return text.empty() ? "none" : std::filesystem::path(text).filename().string();
}

/// Returns the label "linformer k=16". Keys whose last word is not unique in `keys` stay whole.
std::string label_of(const Settings& values, const std::vector<std::string>& keys) {
  std::string out;
  for (const Setting& setting : values) {
    const std::string word = last_word(setting.key);
    const bool unique = std::ranges::count_if(keys, [&](const std::string& key) {
                          return last_word(key) == word;
                        }) <= 1;
    const bool plain = setting.key == "attention.type" || setting.key == "data.task";
    out += (out.empty() ? "" : " ") + (plain ? "" : (unique ? word : setting.key) + "=") +
           shown(setting);
  }
  return out;
}

}  // namespace

void assign(Config& config, const Settings& values) {
  for (const Setting& setting : values) {
    const size_t dot = setting.key.find('.');
    config.assign(setting.key.substr(0, dot), setting.key.substr(dot + 1), setting.value,
                  setting.where);
  }
}

std::string difference_of(const Sweep& sweep, const Sweep& before) {
  std::set<std::string> axes;
  const auto data_of = [&](const Sweep& each) {
    for (const Axis& axis : each.axes)
      for (const Setting& setting : axis.points.front()) axes.insert(setting.key);
    Config config = each.config();
    assign(config, combinations(each).front());
    const auto task = read_task_info(config);
    return Config::parse(effective_config(config, task ? &*task : nullptr), each.name).given();
  };
  const std::map<std::string, OptionValue> now = data_of(sweep), then = data_of(before);
  const auto value_in = [](const auto& options, const std::string& key) {
    const auto found = options.find(key);
    return found == options.end() ? std::string("not given") : to_string(found->second);
  };
  const auto compared = [&](const std::string& key) {
    return key.starts_with("data.") && !axes.contains(key) &&
           value_in(now, key) != value_in(then, key);
  };
  const auto said = [](const std::string& what, const std::string& is, const std::string& was) {
    return fmt::format("its {} is {} instead of {}", what, is, was);
  };
  if (sweep.title != before.title)
    return said("title", to_string(sweep.title), to_string(before.title));
  if (sweep.metric != before.metric)
    return said("metric", to_string(sweep.metric), to_string(before.metric));
  // The other options depend on the task.
  const bool same_task = value_in(now, "data.task") == value_in(then, "data.task");
  for (const auto* const options : {&now, &then})
    for (const auto& [key, value] : *options)
      if (compared(key) && (same_task || key == "data.task"))
        return said(key, value_in(now, key), value_in(then, key));
  return "";
}

std::span<const SweepCell> Grid::searches(size_t variant) const {
  const size_t count = trials.size() * search_seeds;
  return std::span(cells).subspan(variant * count, count);
}

std::span<const SweepCell> Grid::searches(size_t variant, size_t trial) const {
  return searches(variant).subspan(trial * search_seeds, search_seeds);
}

std::span<const SweepCell> Grid::finals(size_t variant, size_t trial) const {
  const size_t first = variants.size() * trials.size() * search_seeds;
  const size_t number = variant * std::max<size_t>(trials.size(), 1) + trial;
  return std::span(cells).subspan(first + number * seeds, seeds);
}

std::vector<std::vector<bool>> cells_of_shard(const Grid& grid, const Shard& shard) {
  const auto is_ours = [&](size_t index) {
    return static_cast<int64_t>(index) % shard.count == shard.index;
  };
  std::vector<std::vector<bool>> ours(grid.variants.size(), std::vector<bool>(grid.seeds));
  std::set<std::string> seen;
  for (size_t seed = 0; seed < grid.seeds; ++seed)
    for (size_t v = 0; v < grid.variants.size(); ++v)
      if (!grid.trials.empty())
        ours[v][seed] = is_ours(v);
      else if (const size_t index = seen.size(); seen.insert(grid.finals(v)[seed].hash).second)
        ours[v][seed] = is_ours(index);
  return ours;
}

Grid expand(const Sweep& sweep) {
  Grid grid;
  grid.sweep = sweep;
  for (const Axis& axis : sweep.axes)
    for (const Setting& setting : axis.points.front())
      if (std::ranges::find(grid.keys, setting.key) == grid.keys.end())
        grid.keys.push_back(setting.key);
  std::vector<Settings> trials{{}};
  if (sweep.search) {
    trials = sweep.search->axis.points;
    std::vector<std::string> keys;
    for (const Setting& setting : trials.front()) {
      check<ConfigError>(std::ranges::find(grid.keys, setting.key) == grid.keys.end(),
                         sweep.search->axis.where, ": search: ", setting.key, " is an axis, too");
      keys.push_back(setting.key);
    }
    grid.search_key = comma_list(keys);
    for (const Settings& trial : trials) grid.trials.push_back(label_of(trial, keys));
  }
  const Config config = sweep.config();
  for (Settings& values : combinations(sweep)) {
    const std::string label = label_of(values, grid.keys);
    grid.variants.push_back({label.empty() ? "base" : label, std::move(values)});
  }
  grid.seeds = sweep.seeds.size();
  grid.search_seeds = sweep.search ? static_cast<size_t>(sweep.search->seeds) : 0;
  std::map<std::string, std::string> data_names;
  for (const bool final : {false, true})
    for (size_t v = 0; v < grid.variants.size(); ++v)
      for (size_t t = 0; t < trials.size(); ++t)
        for (size_t s = 0; s < (final ? grid.seeds : grid.search_seeds); ++s)
          configure(sweep, config, grid.variants[v], trials[t], data_names,
                    grid.cells.emplace_back(SweepCell{v, t, s, final, 0, {}, {}}));
  find_baselines(sweep, grid.variants);
  return grid;
}

}  // namespace longhand::train

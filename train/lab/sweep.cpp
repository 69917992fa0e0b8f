#include "longhand/train/lab/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "longhand/core/error.h"
#include "longhand/core/random.h"
#include "longhand/train/config/toml.h"
#include "longhand/train/lab/columns.h"
#include "longhand/train/transfer/load_weights.h"

namespace longhand::train {
namespace {

const std::set<std::string> own_tables = {"sweep", "axis", "search"};
constexpr int64_t most_points = 100000;

/// Throws ConfigError unless `key` is one of `known`, naming the nearest.
void check_key(const std::string& key, const TomlValue& value,
               const std::vector<std::string>& known) {
  if (std::ranges::find(known, key) != known.end()) return;
  const std::string near = suggestion(key, known);
  throw ConfigError(value.where + ": unknown key " + key +
                    (near.empty() ? "; expected " + comma_list(known) : near));
}

/// Throws ConfigError unless ok: "sweep.toml:3:1: KEY: expected …".
template <class... T>
void expect(bool ok, const TomlValue& value, const std::string& key, const T&... expected) {
  check<ConfigError>(ok, value.where, ": ", key, ": expected ", expected...);
}

const OptionValue& option_of(const TomlValue& value, const std::string& key) {
  expect(value.option.has_value(), value, key,
         "a value that an option has: true or false, a number, text, or a list of integers or of "
         "strings");
  return *value.option;
}

template <class T>
const T& get(const TomlValue& value, const std::string& key, const char* expected) {
  const T* const found = value.option ? std::get_if<T>(&*value.option) : nullptr;
  expect(found, value, key, expected);
  return *found;
}

int64_t get_count(const TomlValue& value, const std::string& key, int64_t low = 1) {
  const auto count = get<int64_t>(value, key, "an integer");
  check<ConfigError>(count >= low && count <= most_points, value.where, ": ", key, " = ", count,
                     ": expected from ", low, " to ", most_points);
  return count;
}

/// A number, and whether it is an integer.
struct Number {
  double value;
  bool integer;
};
Number get_number(const TomlValue& value, const std::string& key) {
  if (value.option) {
    constexpr int64_t most = int64_t{1} << 53;  // above it, double does not have every integer
    if (const auto* const i = std::get_if<int64_t>(&*value.option); i && -most <= *i && *i <= most)
      return {static_cast<double>(*i), true};
    if (const auto* const d = std::get_if<double>(&*value.option); d && std::isfinite(*d))
      return {*d, false};
  }
  throw ConfigError(concat_message(value.where, ": ", key,
                                   ": expected a finite number, or an integer of at most 2^53"));
}

/// Returns the number in an option, if it holds one.
std::optional<double> as_number(const OptionValue& value) {
  return number_in(option_cell(value, ""));
}

/// Returns an integer, or x to four digits, enough to tell values apart; x itself if out of range.
OptionValue option(double x, bool integer) {
  if (integer) return static_cast<int64_t>(std::llround(x));
  const std::string digits = fmt::format("{:.4g}", x);
  std::from_chars(digits.data(), digits.data() + digits.size(), x);
  return x;
}

std::vector<OptionValue> range(const TomlValue& table, const std::string& key) {
  for (const auto& [name, value] : table.entries)
    check_key(name, value, {"from", "to", "factor", "step", "count"});
  const auto number = [&](const char* name) {
    const TomlValue* const found = table.find(name);
    check<ConfigError>(found, table.where, ": ", key, ": a range without \"", name, "\"");
    return get_number(*found, key + "." + name);
  };
  const Number from = number("from"), to = number("to");
  const auto ways = std::ranges::count_if(table.entries, [](const auto& entry) {
    return entry.first != "from" && entry.first != "to";
  });
  expect(ways == 1, table, key, "a range with exactly one of factor, step and count");
  std::vector<OptionValue> values;
  if (const TomlValue* const count_value = table.find("count")) {
    const int64_t count = get_count(*count_value, key + ".count", 2);
    for (int64_t i = 0; i < count; ++i)
      values.push_back(option(from.value + (to.value - from.value) * static_cast<double>(i) /
                                               static_cast<double>(count - 1),
                              from.integer && to.integer));
    return values;
  }
  const bool grows = table.find("factor") != nullptr;
  const Number by = number(grows ? "factor" : "step");
  if (grows)
    expect(by.value > 0 && by.value != 1 && from.value > 0 && to.value > 0, table, key,
           "a factor above 0 other than 1, from and to above 0");
  else
    expect(by.value != 0, table, key, "a step other than 0");
  const bool up = grows ? by.value > 1 : by.value > 0;
  // Rounding must not lose the last value.
  const double slack = 1e-9 * std::max(std::abs(from.value), std::abs(to.value));
  for (int64_t i = 0; i <= most_points; ++i) {
    const double x = grows ? from.value * std::pow(by.value, static_cast<double>(i))
                           : from.value + by.value * static_cast<double>(i);
    if (up ? x > to.value + slack : x < to.value - slack) break;
    values.push_back(option(x, from.integer && by.integer));
  }
  expect(!values.empty() && std::ssize(values) <= most_points, table, key, "a range of 1 to ",
         most_points, " values, got ", values.size());
  return values;
}

/// Count and seed of samples, from a table of values or from an axis.
struct Draws {
  int64_t count = 0;
  int64_t seed = 0;
};

std::vector<OptionValue> drawn(const TomlValue& table, const std::string& key, Draws draws) {
  for (const auto& [name, value] : table.entries)
    check_key(name, value, {"log_uniform", "uniform", "choice", "count", "seed"});
  if (const TomlValue* const count = table.find("count"))
    draws.count = get_count(*count, key + ".count");
  if (const TomlValue* const seed = table.find("seed"))
    draws.seed = get_count(*seed, key + ".seed", 0);
  expect(draws.count > 0, table, key, "the number of draws as \"count\"");
  // Each key is sampled independently of the other keys.
  const Generator generator = Generator(static_cast<uint64_t>(draws.seed)).fork("sweep").fork(key);
  std::vector<OptionValue> values;
  if (const TomlValue* const choice = table.find("choice")) {
    expect(choice->is_list && !choice->items.empty(), *choice, key + ".choice", "a list of values");
    RandomStream stream(generator);
    for (int64_t i = 0; i < draws.count; ++i)
      values.push_back(option_of(choice->items[stream.below(choice->items.size())], key));
    return values;
  }
  const bool log = table.find("log_uniform") != nullptr;
  const TomlValue* const ends = table.find(log ? "log_uniform" : "uniform");
  expect(ends, table, key, "a list, a range (from, to), or log_uniform, uniform or choice");
  expect(ends->is_list && ends->items.size() == 2, *ends, key, "the two ends, as [low, high]");
  const Number low = get_number(ends->items[0], key), high = get_number(ends->items[1], key);
  expect(low.value < high.value && (!log || low.value > 0), *ends, key, "low < high",
         log ? ", above 0" : "");
  for (int64_t i = 0; i < draws.count; ++i) {
    const double u = generator.uniform(static_cast<uint64_t>(i));
    const double x = log ? low.value * std::pow(high.value / low.value, u)
                         : low.value + (high.value - low.value) * u;
    values.push_back(option(x, low.integer && high.integer));
  }
  return values;
}

/// Returns the values of one key.
std::vector<Setting> settings_of(const std::string& key, const TomlValue& value, Draws draws) {
  std::vector<Setting> out;
  if (value.is_list) {
    for (const TomlValue& item : value.items)
      out.push_back({key, option_of(item, key), item.where});
  } else if (value.is_table) {
    for (const OptionValue& each :
         value.find("from") || value.find("to") ? range(value, key) : drawn(value, key, draws))
      out.push_back({key, each, value.where});
  }
  expect(!out.empty(), value, key,
         "values: a list, a range such as {from = 1, to = 8, factor = 2}, or draws such as "
         "{uniform = [0, 1], count = 3}");
  return out;
}

/// Calls with(key, value) for a section's options, "attention.k", and layers', "attention.0.k".
template <class F>
void for_options(const std::string& section, const TomlValue& table, F with) {
  expect(table.is_table, table, section, "an option, such as attention.type");
  for (const auto& [key, value] : table.entries) {
    const bool layer = section == "attention" && value.is_table && !key.empty() &&
                       key.find_first_not_of("0123456789") == std::string::npos;
    if (layer)
      for (const auto& [layer_key, layer_value] : value.entries)
        with(section + "." + key + "." + layer_key, layer_value);
    else
      with(section + "." + key, value);
  }
}

const std::vector<std::string> sections = {"model", "attention", "data", "train", "optimizer"};

Condition condition_of(const TomlValue& table, const std::string& name) {
  expect(table.is_table && !table.entries.empty(), table, name,
         "options and their values, such as { attention.type = \"softmax\" }");
  Condition out;
  for (const auto& [section, entries] : table.entries) {
    check_key(section, entries, sections);
    for_options(section, entries, [&](const std::string& key, const TomlValue& value) {
      if (value.is_list)
        for (const TomlValue& item : value.items) out[key].push_back(option_of(item, key));
      else
        out[key].push_back(option_of(value, key));
    });
  }
  return out;
}

/// Removes points that repeat an earlier one.
void drop_repeated(std::vector<Settings>& points) {
  std::set<std::string> seen;
  std::erase_if(points, [&](const Settings& point) {
    std::string text;
    for (const Setting& setting : point) {
      const auto* const number = std::get_if<double>(&setting.value);
      const bool is_whole = number && std::trunc(*number) == *number && std::abs(*number) < 0x1p63;
      text += to_string(is_whole ? option(*number, true) : setting.value) + "\n";  // 1.0 is 1
    }
    return !seen.insert(text).second;
  });
}

/// Reads the axis in a table; keys in `others` are left to the caller.
Axis axis_of(const TomlValue& table, const std::vector<std::string>& others) {
  Axis axis;
  axis.where = table.where;
  std::vector<std::string> known = sections;
  known.insert(known.end(), {"when", "count", "seed"});
  known.insert(known.end(), others.begin(), others.end());
  Draws draws;
  for (const auto& [key, value] : table.entries) {
    check_key(key, value, known);
    if (key == "count") draws.count = get_count(value, key);
    if (key == "seed") draws.seed = get_count(value, key, 0);
    if (key == "when") axis.when = condition_of(value, key);
  }
  std::string first;
  for (const auto& [section, entries] : table.entries) {
    if (std::ranges::find(sections, section) == sections.end()) continue;
    for_options(section, entries, [&](const std::string& key, const TomlValue& value) {
      check<ConfigError>(key != "train.seed", value.where,
                         ": train.seed cannot be an axis; expected seeds in [sweep]");
      const std::vector<Setting> values = settings_of(key, value, draws);
      if (first.empty()) {
        first = key;
        axis.points.resize(values.size());
      }
      check<ConfigError>(values.size() == axis.points.size(), value.where, ": ", key, " has ",
                         values.size(), " values, but ", first,
                         ", which changes together with it, has ", axis.points.size());
      for (size_t i = 0; i < values.size(); ++i) axis.points[i].push_back(values[i]);
    });
  }
  check<ConfigError>(!axis.points.empty(), table.where,
                     ": expected an option and its values, such as attention.type = [\"softmax\", "
                     "\"linear\"]");
  return axis;
}

std::vector<int64_t> seeds_of(const TomlValue& value) {
  std::vector<int64_t> seeds;
  if (!value.is_list) {
    const int64_t count = get_count(value, "seeds");
    for (int64_t seed = 0; seed < count; ++seed) seeds.push_back(seed);
    return seeds;
  }
  std::set<int64_t> known;
  for (const TomlValue& item : value.items) {
    const auto seed = get<int64_t>(item, "seeds", "an integer");
    expect(seed >= 0, item, "seeds", "at least 0, got ", seed);
    check<ConfigError>(known.insert(seed).second, item.where, ": seeds: ", seed, " is given twice");
    seeds.push_back(seed);
  }
  expect(!seeds.empty(), value, "seeds", "at least one");
  return seeds;
}

/// Reads [sweep], except for the base.
void read_options(const TomlValue& table, Sweep& sweep) {
  expect(table.is_table, table, "sweep", "a table, [sweep]");
  for (const auto& [key, value] : table.entries) {
    check_key(key, value, {"title", "base", "seeds", "metric", "baseline", "set"});
    if (key == "title") sweep.title = get<std::string>(value, key, "text");
    if (key == "seeds") sweep.seeds = seeds_of(value);
    if (key == "baseline") sweep.baseline = condition_of(value, key);
    if (key == "metric") {
      sweep.metric = get<std::string>(value, key, "\"accuracy\" or \"loss\"");
      check<ConfigError>(sweep.metric == "accuracy" || sweep.metric == "loss", value.where,
                         ": metric = \"", sweep.metric, "\": expected \"accuracy\" or \"loss\"");
    }
    if (key == "set") {
      expect(value.is_list, value, key, "a list of assignments");
      for (const TomlValue& item : value.items)
        sweep.set.push_back(get<std::string>(item, key, "text such as \"train.steps=500\""));
    }
  }
}

void read_base(const TomlValue& root, std::string_view text, const std::filesystem::path& folder,
               Sweep& sweep) {
  const TomlValue* const options = root.find("sweep");
  const TomlValue* const base = options ? options->find("base") : nullptr;
  sweep.base = text;
  sweep.base_name = sweep.name;
  if (!base) return;
  for (const auto& [section, table] : root.entries)
    check<ConfigError>(own_tables.contains(section), table.where, ": [", section,
                       "]: expected either a base or sections of options; to change options of the "
                       "base, write set = [\"section.key=value\"] in [sweep]");
  const std::filesystem::path path = folder / get<std::string>(*base, "base", "a path");
  sweep.base = read_toml(path);
  sweep.base_name = path.lexically_normal().string();
}

void read_axes(const TomlValue& root, Sweep& sweep) {
  const TomlValue* const axes = root.find("axis");
  if (!axes) return;
  expect(axes->is_list, *axes, "axis", "tables, each one [[axis]]");
  for (const TomlValue& table : axes->items) {
    expect(table.is_table, table, "axis", "a table, [[axis]]");
    sweep.axes.push_back(axis_of(table, {}));
  }
}

const std::vector<std::string> search_keys = {"seeds", "steps", "around", "extend", "halving"};

/// Adds `count` values at each end of a search axis, by the ratio of the two adjacent values.
void extend(Axis& axis, int64_t count) {
  std::vector<Settings>& points = axis.points;
  const auto value = [](const Settings& point) { return *as_number(point.front().value); };
  const auto beyond = [&](Settings edge, const Settings& before) {
    const double x = value(edge) * value(edge) / value(before);
    OptionValue& at_edge = edge.front().value;
    at_edge = option(x, std::holds_alternative<int64_t>(at_edge));
    return edge;
  };
  for (int64_t i = 0; i < count; ++i) {
    points.insert(points.begin(), beyond(points[0], points[1]));
    points.push_back(beyond(points.back(), points[points.size() - 2]));
  }
}

/// Returns whether an axis holds positive values of one option, in increasing order.
bool is_increasing(const Axis& axis) {
  double last = 0;
  for (const Settings& point : axis.points) {
    const double x = as_number(point.front().value).value_or(0);
    if (point.size() > 1 || !(x > last)) return false;
    last = x;
  }
  return axis.points.size() > 1;
}

/// Reads which trials of a search end early, and which are added.
void read_refinement(const TomlValue& table, Search& search) {
  for (const auto& [key, to] : {std::pair{"around", &search.around}, {"extend", &search.extend}})
    if (const TomlValue* const value = table.find(key)) {
      *to = get_count(*value, key, 0);
      const bool increasing = is_increasing(search.axis);
      if (increasing) extend(search.axis, search.extend);
      expect(*to == 0 || (increasing && is_increasing(search.axis)), *value, key,
             "a search of one option, with two or more values above 0 in increasing order");
    }
  if (const TomlValue* const list = table.find("halving")) {
    expect(list->is_list, *list, "halving", "fractions of the steps, such as [0.25, 0.5]");
    for (const TomlValue& item : list->items) {
      const double x = get_number(item, "halving").value;
      expect(x > (search.halving.empty() ? 0 : search.halving.back()) && x < 1, item, "halving",
             "fractions between 0 and 1 in increasing order");
      search.halving.push_back(x);
    }
  }
}

// TOML for the parts of a sweep. Dotted keys need no quotes: they consist of known names.
std::string toml_list(const std::vector<OptionValue>& values) {
  std::vector<std::string> texts;
  for (const OptionValue& value : values) texts.push_back(to_string(value));
  return "[" + comma_list(texts) + "]";
}

std::string toml_condition(const Condition& condition) {
  std::vector<std::string> texts;
  for (const auto& [key, values] : condition) texts.push_back(key + " = " + toml_list(values));
  return "{ " + comma_list(texts) + " }";
}

std::string toml_axis(const Axis& axis) {
  std::string out;
  if (!axis.when.empty()) out += "when = " + toml_condition(axis.when) + "\n";
  for (size_t key = 0; key < axis.points.front().size(); ++key) {
    std::vector<OptionValue> values;
    for (const Settings& point : axis.points) values.push_back(point[key].value);
    out += axis.points.front()[key].key + " = " + toml_list(values) + "\n";
  }
  return out;
}

/// Makes the paths to runs absolute wherever the sweep gives them: relative to `folder` if they
/// exist there, else to the current directory, as on the command line.
void resolve_run_paths(Sweep& sweep, const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  const auto resolve = [&](const std::string& key, OptionValue& value) {
    auto* const path = std::get_if<std::string>(&value);
    if (!path || path->empty() || !is_run_path(key)) return;
    const fs::path near = folder / *path;
    *path = absolute_path(fs::exists(near) ? near : fs::path(*path));
  };
  for (const auto& [key, given] : sweep.config().given()) {
    OptionValue value = given;
    resolve(key, value);
    if (value != given) sweep.set.push_back(key + "=" + to_string(value));
  }
  const auto resolve_condition = [&](Condition& condition) {
    for (auto& [key, values] : condition)
      for (OptionValue& value : values) resolve(key, value);
  };
  const auto resolve_axis = [&](Axis& axis) {
    resolve_condition(axis.when);
    for (Settings& point : axis.points)
      for (Setting& setting : point) resolve(setting.key, setting.value);
  };
  for (Axis& axis : sweep.axes) resolve_axis(axis);
  if (sweep.search) resolve_axis(sweep.search->axis);
  resolve_condition(sweep.baseline);
}

}  // namespace

bool same_value(const OptionValue& a, const OptionValue& b) {
  const auto x = as_number(a), y = as_number(b);
  return x && y && a.index() != b.index() ? *x == *y : a == b;
}

bool is_run_path(const std::string& key) {
  return key == "train.init_from" || key == "train.distill_from";
}

std::string plain_text(const OptionValue& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return *text;
  if (const auto* const list = std::get_if<std::vector<std::string>>(&value))
    return fmt::format("{}", fmt::join(*list, "+"));
  return to_string(value);
}

std::string toml_of_options(const std::map<std::string, std::string>& options) {
  std::string out, section;
  for (const auto& [key, value] : options) {
    const size_t dot = key.find('.');
    if (key.substr(0, dot) != section) {
      section = key.substr(0, dot);
      out += (out.empty() ? "[" : "\n[") + section + "]\n";
    }
    out += key.substr(dot + 1) + " = " + value + "\n";
  }
  return out;
}

Sweep Sweep::load(const std::filesystem::path& path, const std::vector<std::string>& set) {
  Sweep sweep = parse(read_toml(path), path.string(), path.parent_path(), set);
  if (sweep.title.empty()) sweep.title = path.stem().string();
  return sweep;
}

std::vector<std::filesystem::path> parts_of(const std::filesystem::path& file) {
  const auto list_of = [](const TomlValue& root) -> const TomlValue* {
    const TomlValue* const options = root.find("sweep");
    return options ? options->find("parts") : nullptr;
  };
  const TomlValue root = parse_toml(read_toml(file), file.string());
  const TomlValue* const list = list_of(root);
  if (!list) return {};
  expect(list->is_list && !list->items.empty(), *list, "parts", "a list of sweep files");
  expect(root.entries.size() == 1 && root.find("sweep")->entries.size() == 1, *list, "parts",
         "nothing else in the file; options belong in the files of its sweeps");
  std::vector<std::filesystem::path> parts;
  std::set<std::string> names;
  for (const TomlValue& item : list->items) {
    parts.push_back(file.parent_path() / get<std::string>(item, "parts", "a sweep file"));
    expect(names.insert(parts.back().stem().string()).second, item, "parts",
           "files of different names; each names the directory of its sweep");
    expect(!list_of(parse_toml(read_toml(parts.back()), parts.back().string())), item, "parts",
           "a sweep without parts of its own");
  }
  return parts;
}

Sweep Sweep::parse(std::string_view text, const std::string& name,
                   const std::filesystem::path& folder, const std::vector<std::string>& set) {
  const TomlValue root = parse_toml(text, name);
  std::vector<std::string> known(own_tables.begin(), own_tables.end());
  known.insert(known.end(), sections.begin(), sections.end());
  for (const auto& [key, value] : root.entries) check_key(key, value, known);
  Sweep sweep;
  sweep.name = name;
  read_base(root, text, folder, sweep);
  if (const TomlValue* const options = root.find("sweep")) read_options(*options, sweep);
  sweep.set.insert(sweep.set.end(), set.begin(), set.end());
  if (sweep.seeds.empty()) {
    const auto given = sweep.config().given();
    const auto seed = given.find("train.seed");
    const auto* const value = seed == given.end() ? nullptr : std::get_if<int64_t>(&seed->second);
    sweep.seeds = {value ? *value : 0};
  }
  read_axes(root, sweep);
  if (const TomlValue* const table = root.find("search")) {
    expect(table->is_table, *table, "search", "a table, [search]");
    Search search{.axis = axis_of(*table, search_keys)};
    drop_repeated(search.axis.points);
    check<ConfigError>(search.axis.when.empty(), table->where,
                       ": search: every variant is searched alike; when applies to [[axis]]");
    if (const TomlValue* const seeds = table->find("seeds")) {
      search.seeds = get_count(*seeds, "seeds");
      check<ConfigError>(search.seeds <= static_cast<int64_t>(sweep.seeds.size()), seeds->where,
                         ": seeds = ", search.seeds, ": expected at most the ", sweep.seeds.size(),
                         " seeds of the sweep");
    }
    if (const TomlValue* const steps = table->find("steps")) {
      search.steps = get<int64_t>(*steps, "steps", "an integer");
      expect(search.steps >= 1, *steps, "steps", "at least 1");
    }
    read_refinement(*table, search);
    sweep.search = std::move(search);
  }
  // Without axes, the sweep repeats one configuration and needs no baseline.
  if (sweep.baseline.empty() && !sweep.axes.empty() && sweep.axes.front().when.empty())
    for (const Setting& setting : sweep.axes.front().points.front())
      sweep.baseline[setting.key] = {setting.value};
  resolve_run_paths(sweep, folder);
  return sweep;
}

Sweep Sweep::over(std::string_view text, const std::string& name, std::string base_text,
                  std::string base_file) {
  const TomlValue root = parse_toml(text, name);
  Sweep sweep;
  sweep.name = name;
  sweep.base = std::move(base_text);
  sweep.base_name = std::move(base_file);
  for (const auto& [key, value] : root.entries) {
    check<ConfigError>(key != "search" && std::ranges::find(sections, key) == sections.end(),
                       value.where, ": [", key, "]: the options are those of ", sweep.base_name,
                       "; expected [sweep] and [[axis]] only");
    check_key(key, value, {"sweep", "axis"});
  }
  if (const TomlValue* const options = root.find("sweep")) {
    const TomlValue* const own = options->find("base");
    check<ConfigError>(!own, own ? own->where : "", ": base: the base is ", sweep.base_name,
                       "; expected a file without one");
    read_options(*options, sweep);
  }
  read_axes(root, sweep);
  return sweep;
}

Config Sweep::config() const {
  Config config = Config::parse(base, base_name, own_tables);
  for (const std::string& assignment : set) config.assign(assignment);
  return config;
}

std::string Sweep::to_toml() const {
  std::string out = "[sweep]\ntitle = " + to_string(title) + "\nseeds = " + to_string(seeds) +
                    "\nmetric = " + to_string(metric) + "\n";
  if (!baseline.empty()) out += "baseline = " + toml_condition(baseline) + "\n";
  if (!set.empty()) out += "set = " + to_string(set) + "\n";
  std::map<std::string, std::string> options;
  for (const auto& [key, value] : Config::parse(base, base_name, own_tables).given())
    options[key] = to_string(value);
  if (!options.empty()) out += "\n" + toml_of_options(options);
  for (const Axis& axis : axes) out += "\n[[axis]]\n" + toml_axis(axis);
  if (search) {
    Axis given = search->axis;  // without the values that `extend` adds
    given.points.erase(given.points.end() - search->extend, given.points.end());
    given.points.erase(given.points.begin(), given.points.begin() + search->extend);
    out += "\n[search]\n" + toml_axis(given);
    for (const auto& [key, value] : {std::pair{"seeds", search->seeds},
                                     {"steps", search->steps},
                                     {"around", search->around},
                                     {"extend", search->extend}})
      if (value > 0) out += fmt::format("{} = {}\n", key, value);
    if (!search->halving.empty())
      out += fmt::format("halving = [{}]\n", fmt::join(search->halving, ", "));
  }
  return out;
}

}  // namespace longhand::train

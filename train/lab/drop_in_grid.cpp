#include "longhand/train/lab/drop_in.h"

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/train/config/toml.h"

namespace longhand::train {
namespace {

/// Splits "a,[b,c]" into "a" and "[b,c]".
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  int64_t depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

Axis axis_of(const std::string& assignment) {
  Axis axis;
  axis.where = "--over";
  const size_t equals = assignment.find('=');
  check<ConfigError>(equals != std::string::npos && equals + 1 < assignment.size(), "--over ",
                     assignment, ": expected section.key=value,value,...");
  for (const std::string& value : split_at_commas(assignment.substr(equals + 1))) {
    Config config;
    config.assign(assignment.substr(0, equals + 1) + value, "--over");
    const std::string key = config.given().begin()->first;
    if (key == "attention.type" && value.find('+') != std::string::npos)
      config.assign("attention", "type", split_at(value, '+'), "--over");
    axis.points.push_back({{key, config.given().at(key), "--over"}});
  }
  return axis;
}

const std::string& key_of(const Axis& axis) { return axis.points.front().front().key; }

/// Returns the values of attention.type in the grid.
std::vector<OptionValue> types_of(const Sweep& sweep) {
  std::vector<OptionValue> types;
  for (const Axis& axis : sweep.axes)
    for (const Settings& point : axis.points)
      for (const Setting& setting : point)
        if (setting.key == "attention.type") types.push_back(setting.value);
  if (!types.empty()) return types;
  const auto given = sweep.config().given();
  const auto type = given.find("attention.type");
  return {type == given.end() ? OptionValue(std::string("softmax")) : type->second};
}

/// Limits the axis of an attention option to the variants that declare it.
void limit_to_variants(const std::vector<OptionValue>& types, Axis& axis) {
  const std::string option = key_of(axis).substr(key_of(axis).rfind('.') + 1);
  std::vector<OptionValue> declaring;
  std::vector<std::string> known;
  std::string all;
  for (const OptionValue& type : types) {
    bool declares = false;
    // One variant, or one per layer.
    for (const std::string& variant : split_at(plain_text(type), '+'))
      for (const Field& field : attention::spec(variant).options) {
        declares = declares || field.name == option;
        known.push_back(field.name);
      }
    if (declares) declaring.push_back(type);
    all += (all.empty() ? "" : ", ") + plain_text(type);
  }
  check<ConfigError>(!declaring.empty(), "--over ", key_of(axis), ": no variant of the grid (", all,
                     ") has this option", suggestion(option, known));
  if (declaring.size() < types.size()) axis.when["attention.type"] = declaring;
}

}  // namespace

Sweep drop_in_grid(const SavedModel& run, const std::string& file,
                   const std::vector<std::string>& over, const std::vector<std::string>& set) {
  Sweep sweep = file.empty() ? Sweep::over("", "--over", run.checkpoint.config, run.file)
                             : Sweep::over(read_toml(file), file, run.checkpoint.config, run.file);
  sweep.set.insert(sweep.set.end(), set.begin(), set.end());
  std::vector<Axis> axes;
  for (const std::string& assignment : over) axes.push_back(axis_of(assignment));
  // Options apply to variants, so variants come first.
  std::ranges::stable_partition(axes,
                                [](const Axis& axis) { return key_of(axis) == "attention.type"; });
  const size_t from_file = sweep.axes.size();
  sweep.axes.insert(sweep.axes.end(), axes.begin(), axes.end());
  const std::vector<OptionValue> types = types_of(sweep);
  for (size_t i = from_file; i < sweep.axes.size(); ++i)
    if (const std::string& key = key_of(sweep.axes[i]);
        is_attention(key) && key != "attention.type")
      limit_to_variants(types, sweep.axes[i]);
  for (const Axis& axis : sweep.axes)
    for (const Setting& setting : axis.points.front())
      check<ConfigError>(
          !setting.key.starts_with("train.") && !setting.key.starts_with("optimizer."),
          setting.where, ": ", setting.key,
          " has no effect on an evaluation; expected options of [attention], [model] or [data]");
  return sweep;
}

}  // namespace longhand::train

#include "longhand/train/reference.h"

#include <algorithm>
#include <sstream>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/data/dataset.h"
#include "longhand/train/config.h"
#include "longhand/train/experiment.h"

namespace longhand::train {
namespace {

const std::vector<std::pair<std::string, std::string>> sections = {
    {"model", "the Transformer, except its attention"},
    {"attention", "the attention variant and its options"},
    {"data", "the task and its options"},
    {"train", "steps, batches, evaluation and checkpoints"},
    {"optimizer", "the optimizer and the learning rate"},
};

Schema options_of(const std::string& section) {
  if (section == "model") return schema_of<attention::TransformerConfig>();
  if (section == "attention") return schema_of<attention::AttentionSection>();
  if (section == "data") return data::section_options();
  if (section == "train") return schema_of<TrainSection>();
  return schema_of<OptimizerSection>();
}

}  // namespace

std::vector<std::string> topic_names() {
  std::vector<std::string> names;
  for (const auto& [name, summary] : sections) names.push_back(name);
  for (const std::string& name : attention::names()) names.push_back("attention." + name);
  for (const std::string& name : data::task_names()) names.push_back("data." + name);
  return names;
}

Topic topic(const std::string& name) {
  for (const auto& [section, summary] : sections) {
    if (name != section) continue;
    Topic page{name, summary, options_of(section), {}};
    if (section == "attention")
      for (const std::string& variant : attention::names())
        page.topics.emplace_back("attention." + variant, attention::spec(variant).summary);
    if (section == "data")
      for (const std::string& task : data::task_names())
        page.topics.emplace_back("data." + task, data::task_summary(task));
    return page;
  }
  const auto below = [&](const std::string& section, const std::vector<std::string>& names) {
    return name.starts_with(section + ".") &&
           std::find(names.begin(), names.end(), name.substr(section.size() + 1)) != names.end();
  };
  const std::string key = name.substr(name.find('.') + 1);
  if (below("attention", attention::names()))
    return {name,
            concat_message(attention::spec(key).summary, " (", attention::spec(key).paper, ")"),
            attention::spec(key).options,
            {}};
  if (below("data", data::task_names()))
    return {name, data::task_summary(key), data::task_options(key), {}};
  std::string hint;
  for (const auto& [section, summary] : sections) hint += (hint.empty() ? "" : ", ") + section;
  hint = "; expected one of " + hint + ", attention.NAME and data.NAME";
  // The bare name of a variant or task, or a misspelling.
  std::vector<std::string> known = topic_names();
  std::string near;
  for (const std::string& each : known)
    if (each.ends_with("." + name)) near = each;
  if (near.empty()) near = nearest(name, known);
  if (!near.empty()) hint = "; did you mean " + near + '?';
  throw ConfigError("no help for \"" + name + "\"" + hint);
}

std::string to_text(const Topic& topic, int64_t width) {
  std::string out = topic.name + ": " + topic.summary + "\n";
  if (!topic.options.empty()) out.append("\n").append(to_text(topic.options, width));
  if (!topic.topics.empty()) {
    size_t column = 0;
    for (const auto& [name, summary] : topic.topics) column = std::max(column, name.size() + 4);
    out += "\n";
    for (const auto& [name, summary] : topic.topics) {
      std::string line = "  " + name;
      line.resize(column, ' ');
      out += line + summary + "\n";
    }
  }
  return out;
}

std::string to_markdown(const Topic& topic) {
  std::string out;
  if (!topic.options.empty()) out += to_markdown(topic.options);
  if (!topic.topics.empty()) {
    if (!out.empty()) out += "\n";
    for (const auto& [name, summary] : topic.topics) out += "- `" + name + "`: " + summary + "\n";
  }
  return out;
}

std::string with_comments(const std::string& toml) {
  const Config config = Config::parse(toml, "configuration");
  const auto given = config.given();
  const auto value = [&](const std::string& name) {
    const auto found = given.find(name);
    const std::string* text =
        found == given.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text ? *text : std::string();
  };
  std::string section, out;
  Schema schema;
  std::istringstream lines(toml);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) {
      section = line.substr(1, line.size() - 2);
      schema = options_of(section);
      for (const auto& [of, key] : {std::pair{"attention", "type"}, {"data", "task"}}) {
        const std::string name = section + "." + value(section + "." + key);
        if (section != of || name == section + ".") continue;
        const Schema more = topic(name).options;
        schema.insert(schema.end(), more.begin(), more.end());
      }
    }
    const std::string key = line.substr(0, line.find(" = "));
    const auto field =
        std::find_if(schema.begin(), schema.end(), [&](const Field& f) { return f.name == key; });
    if (field != schema.end())
      line += std::string(line.size() < 32 ? 32 - line.size() : 1, ' ') + "# " + field->meaning;
    out += line + "\n";
  }
  return out;
}

}  // namespace longhand::train

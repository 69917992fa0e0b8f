#include "longhand/train/config/reference.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "longhand/data/dataset.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/toml.h"

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

std::string DeclaredOption::name() const {
  return topic.substr(0, topic.find('.')) + "." + field.name;
}

std::string DeclaredOption::full_name() const { return topic + "." + field.name; }

std::string accepted_values(const Field& field) {
  return field.values.empty() ? field.type : field.values;
}

std::vector<std::string> choices(const Field& field) {
  if (field.type != "choice" && field.type != "choices" && field.type != "boolean") return {};
  // "a, b or c"
  std::vector<std::string> words;
  std::istringstream in(field.values);
  for (std::string word; in >> word;) {
    if (word.ends_with(',')) word.pop_back();
    if (word != "or") words.push_back(word);
  }
  return words;
}

bool is_computed(const Field& field) {
  try {
    parse_toml("default = " + field.default_value, "");
    return false;
  } catch (const ConfigError&) {
    return true;
  }
}

std::vector<DeclaredOption> declared_options() {
  std::vector<DeclaredOption> out;
  for (const std::string& name : topic_names())
    for (Field& field : topic(name).options) out.push_back({name, std::move(field)});
  return out;
}

std::vector<DeclaredOption> options_named(const std::string& name) {
  std::vector<DeclaredOption> out;
  for (DeclaredOption& option : declared_options())
    if (name == option.name() || name == option.full_name() || name == option.field.name)
      out.push_back(std::move(option));
  return out;
}

std::vector<DeclaredOption> options_about(const std::string& text) {
  const auto lower = [](std::string word) {
    for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return word;
  };
  std::vector<DeclaredOption> out;
  for (DeclaredOption& option : declared_options())
    if (lower(option.full_name() + " " + option.field.meaning).find(lower(text)) !=
        std::string::npos)
      out.push_back(std::move(option));
  return out;
}

std::vector<std::string> names_of(const std::vector<DeclaredOption>& options) {
  std::vector<std::string> names;
  for (const DeclaredOption& option : options)
    if (std::find(names.begin(), names.end(), option.name()) == names.end())
      names.push_back(option.name());
  return names;
}

std::string to_text(const Topic& topic, int64_t width) {
  const auto columns = static_cast<size_t>(width);
  std::string out = wrapped_lines(topic.name + ": " + topic.summary, columns) + "\n";
  if (!topic.options.empty()) out.append("\n").append(to_text(topic.options, width));
  if (!topic.topics.empty()) {
    size_t column = 0;
    for (const auto& [name, summary] : topic.topics) column = std::max(column, name.size() + 4);
    out += "\n";
    for (const auto& [name, summary] : topic.topics) {
      std::string head = "  " + name;
      for (const std::string& line : wrapped(summary, columns - column)) {
        head.resize(column, ' ');
        out += head + line + "\n";
        head.clear();
      }
    }
  }
  return out;
}

namespace {

/// Whether two options are the same one, which several tasks or variants declare.
bool are_same(const DeclaredOption& a, const DeclaredOption& b) {
  return a.name() == b.name() && a.field.meaning == b.field.meaning &&
         a.field.values == b.field.values && a.field.default_value == b.field.default_value &&
         a.field.condition == b.field.condition;
}

/// The words of the command line and of a file that set an option to its default.
std::string how_to_set(const DeclaredOption& option) {
  const Field& field = option.field;
  const std::string section = option.topic.substr(0, option.topic.find('.'));
  const bool has_value = !is_computed(field) && field.default_value != "\"\"";
  const std::string value = has_value ? field.default_value : "VALUE";
  std::string word = value;
  std::erase(word, '"');
  return concat_message("--set ", section, ".", field.name, "=", word, ", or ", field.name, " = ",
                        value, " in [", section, "]");
}

}  // namespace

std::string to_text(const std::vector<DeclaredOption>& options, int64_t width) {
  constexpr size_t column = 12;
  std::string out;
  std::vector<bool> shown(options.size(), false);
  for (size_t i = 0; i < options.size(); ++i) {
    if (shown[i]) continue;
    const DeclaredOption& option = options[i];
    const Field& field = option.field;
    std::string owners;    // the tasks or variants that declare it
    bool differs = false;  // among those of the same name
    for (size_t j = 0; j < options.size(); ++j) {
      if (options[j].name() != option.name()) continue;
      shown[j] = shown[j] || are_same(option, options[j]);
      differs = differs || !are_same(option, options[j]);
      const size_t dot = options[j].topic.find('.');
      if (are_same(option, options[j]) && dot != std::string::npos)
        owners += (owners.empty() ? "" : ", ") + options[j].topic.substr(dot + 1);
    }
    const auto line = [&](const char* name, const std::string& text) {
      std::string head = concat_message("  ", name);
      for (const std::string& part : wrapped(text, static_cast<size_t>(width) - column)) {
        head.resize(column, ' ');
        out += head + part + "\n";
        head.clear();
      }
    };
    out += out.empty() ? "" : "\n";
    const std::string title =
        differs && !owners.empty() ? concat_message(option.name(), " of ", owners) : option.name();
    std::string indent;
    for (const std::string& part : wrapped(title, static_cast<size_t>(width) - column)) {
      out += indent + part + "\n";
      indent.assign(column, ' ');
    }
    line("meaning", field.meaning);
    line("values", accepted_values(field));
    line("default", field.default_value);
    if (!field.condition.empty()) line("only with", field.condition);
    if (!owners.empty()) line(option.topic.starts_with("data.") ? "tasks" : "variants", owners);
    line("set it by", how_to_set(option));
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

std::string reference_page() {
  std::string out =
      "# Options\n\n"
      "Every option of a configuration, as `longhand help` shows it: `longhand help optimizer` "
      "prints a section, `longhand help\n"
      "optimizer.lr` one option, and `longhand help \"learning rate\"` those whose meaning has "
      "these words. `longhand config init TASK VARIANT`\n"
      "writes a file with all of them. Options are given in a file, as `lr = 1e-3` in "
      "`[optimizer]`, or on the command line, as\n"
      "`--set optimizer.lr=1e-3`. This page is generated from the declarations: "
      "`tests/update_pages.sh` writes it.\n";
  for (const std::string& name : topic_names()) {
    const Topic page = topic(name);
    const bool is_section = name.find('.') == std::string::npos;
    out += concat_message("\n", is_section ? "## [" : "### ", name, is_section ? "]" : "", "\n\n",
                          static_cast<char>(std::toupper(page.summary.front())),
                          page.summary.substr(1), ".\n\n");
    const std::string text = to_markdown(page);
    out += text.empty() ? "It has no options of its own.\n" : text;
  }
  return out;
}

namespace {

/// The options of a section that `values` may hold: those of the section and of its task or variants.
Schema options_of(const std::string& section, const EffectiveValues& values) {
  Schema schema = options_of(section);
  std::set<std::string> names;
  for (const Field& field : schema) names.insert(field.name);
  const auto selected = values.find(section == "data" ? "task" : "type");
  if ((section != "data" && section != "attention") || selected == values.end()) return schema;
  std::vector<std::string> words;
  if (const auto* const list = std::get_if<std::vector<std::string>>(&selected->second.value))
    words = *list;
  else
    words = {std::get<std::string>(selected->second.value)};
  for (const std::string& word : words)
    for (const Field& field : topic(section + "." + word).options)
      if (names.insert(field.name).second) schema.push_back(field);
  return schema;
}

std::string as_comment(const std::string& text) {
  std::string out;
  for (const std::string& line : wrapped(text, 98)) out += "# " + line + "\n";
  return out;
}

/// With a configuration, one to start from, in which these options are given.
std::string commented(const std::string& effective, const Config* given) {
  const Config all = Config::parse(effective, "configuration");
  std::string out;
  for (const auto& [section, summary] : sections) {
    EffectiveValues values;
    for (const std::string& key : all.section(section).keys())
      values[key] = {all.section(section).find(key)->value,
                     !given || given->section(section).has(key)};
    out += concat_message(out.empty() ? "" : "\n", "# ---- ", summary, "\n[", section, "]\n");
    std::set<std::string> written;
    for (const Field& field : options_of(section, values)) {
      std::string text;
      // The option, and those of single layers, "1.window".
      for (const auto& [key, value] : values) {
        if (key != field.name && !key.ends_with("." + field.name)) continue;
        written.insert(key);
        const bool computed = is_computed(field) && !value.given;
        text += concat_message(computed ? "# " : "", key, " = ", to_string(value.value), "\n");
      }
      if (text.empty() && given)
        text = concat_message("# ", field.name, " = ",
                              is_computed(field) ? "..." : field.default_value, "\n");
      if (text.empty()) continue;
      out.append("\n").append(as_comment(
          concat_message(field.meaning, field.condition.empty() ? "" : "; with ", field.condition,
                         " (", accepted_values(field), "; default ", field.default_value, ")")));
      out += text;
    }
    for (const auto& [key, value] : values)
      if (!written.contains(key)) out += concat_message(key, " = ", to_string(value.value), "\n");
  }
  return out;
}

}  // namespace

std::string commented_toml(const std::string& effective) { return commented(effective, nullptr); }

std::string starting_toml(const std::string& effective, const Config& given) {
  return commented(effective, &given);
}

}  // namespace longhand::train

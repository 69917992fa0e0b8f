#include "longhand/train/config/reference.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "longhand/attention/registry.h"
#include "longhand/core/error.h"
#include "longhand/core/utf8.h"
#include "longhand/data/dataset.h"
#include "longhand/train/config/experiment.h"
#include "longhand/train/config/toml.h"

namespace longhand::train {
namespace {

constexpr size_t width = 100;  // of lines for a terminal

/// Returns all topics: the five sections, then variants and tasks.
std::vector<Topic> topics() {
  std::vector<Topic> out = {
      {"model", "the Transformer, except its attention", schema_of<attention::TransformerConfig>()},
      {"attention", "the attention variant and its options",
       schema_of<attention::AttentionSection>()},
      {"data", "the task and its options", data::section_options()},
      {"train", "steps, batches, evaluation and checkpoints", schema_of<TrainSection>()},
      {"optimizer", "the optimizer and the learning rate", schema_of<OptimizerSection>()}};
  const auto add = [&](Topic& section, const std::string& name, const std::string& summary) {
    section.topics.emplace_back(section.name + "." + name, summary);
    return section.topics.back().first;
  };
  for (const std::string& name : attention::names()) {
    const attention::Spec& spec = attention::spec(name);
    const std::string full = add(out[1], name, spec.summary);
    out.push_back({full, concat_message(spec.summary, " (", spec.paper, ")"), spec.options});
  }
  for (const std::string& name : data::task_names()) {
    const std::string summary = data::task_summary(name);
    const std::string full = add(out[2], name, summary);
    out.push_back({full, summary, data::task_options(name)});
  }
  return out;
}

bool is_section(const std::string& topic) { return topic.find('.') == std::string::npos; }

/// Returns `head` with the lines of a text beside it, starting at this column.
std::string beside(std::string head, const std::string& text, size_t column) {
  std::string out;
  for (const std::string& line : wrapped(text, width - column)) {
    head.resize(column, ' ');
    out += head + line + "\n";
    head.clear();
  }
  return out;
}

/// Returns "lr" for "optimizer.lr".
std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// Returns whether each part of a word begins a part of a value: "relu_sq" for "squared_relu".
bool abbreviates(const std::string& word, const std::string& value) {
  for (const std::string& part : split_at(word, '_'))
    if (part.empty() || ("_" + value).find("_" + part) == std::string::npos) return false;
  return !word.empty();
}

/// Returns "; did you mean optimizer.lr?" with the nearest topic or option, in the name's section
/// if possible; else the value of an option, and the options that have it. Empty: none.
std::string meant_by(const std::string& name) {
  const std::string word = last_word(name), section = name.substr(0, name.find('.')) + ".";
  const std::vector<DeclaredOption> options = declared_options();
  const auto found = [&](const std::string& prefix) {
    std::vector<std::string> words, names = topic_names();
    for (const DeclaredOption& option : options) names.push_back(option.name());
    std::erase_if(names, [&](const std::string& each) { return !each.starts_with(prefix); });
    for (const std::string& each : names) words.push_back(last_word(each));
    const auto at = std::ranges::find(words, nearest(word, words));
    return at == words.end() ? "" : names[static_cast<size_t>(at - words.begin())];
  };
  for (const std::string& prefix : {section, std::string()})
    if (const std::string near = found(prefix); !near.empty())
      return "; did you mean " + near + "?";

  std::vector<std::string> values;
  for (const DeclaredOption& option : options)
    if (option.field.type != "boolean")
      for (std::string& value : choices(option.field)) values.push_back(std::move(value));
  std::string value = nearest(word, values);
  if (value.empty()) {
    const auto at =
        std::ranges::find_if(values, [&](const auto& each) { return abbreviates(word, each); });
    if (at != values.end()) value = *at;
  }
  if (value.empty()) return "";
  std::string owners;
  for (const DeclaredOption& option : options)
    if (const auto all = choices(option.field); std::ranges::find(all, value) != all.end())
      owners += (owners.empty() ? "" : ", ") + option.full_name();
  return concat_message("; did you mean ", value, ", a value of ", owners, "?");
}

}  // namespace

std::vector<std::string> topic_names() {
  std::vector<std::string> names;
  for (const Topic& each : topics()) names.push_back(each.name);
  return names;
}

Topic topic(const std::string& name) {
  for (Topic& each : topics())
    if (each.name == name) return std::move(each);
  const std::string meant = meant_by(name);
  throw ConfigError(concat_message(
      "no help for \"", name, "\"",
      meant.empty() ? "; expected one of model, attention, data, train, optimizer, attention.NAME "
                      "and data.NAME"
                    : meant));
}

std::string DeclaredOption::section() const { return topic.substr(0, topic.find('.')); }
std::string DeclaredOption::owner() const { return topic.substr(topic.find('.') + 1); }
std::string DeclaredOption::name() const { return section() + "." + field.name; }
std::string DeclaredOption::full_name() const { return topic + "." + field.name; }

std::string accepted_values(const Field& field) {
  return field.values.empty() ? field.type : field.values;
}

std::vector<std::string> choices(const Field& field) {
  if (field.type != "choice" && field.type != "choices" && field.type != "boolean") return {};
  std::vector<std::string> words = split_at(field.values, ' ');  // "a, b or c"
  std::erase(words, "or");
  for (std::string& word : words)
    if (word.ends_with(',')) word.pop_back();
  return words;
}

std::vector<DeclaredOption> declared_options() {
  std::vector<DeclaredOption> out;
  for (Topic& topic : topics())
    for (Field& field : topic.options) out.push_back({topic.name, std::move(field)});
  return out;
}

std::vector<DeclaredOption> options_named(const std::string& name) {
  std::vector<DeclaredOption> out = declared_options();
  std::erase_if(out, [&](const DeclaredOption& option) {
    return name != option.name() && name != option.full_name() && name != option.field.name;
  });
  return out;
}

std::vector<DeclaredOption> options_about(const std::string& text) {
  std::vector<DeclaredOption> out = declared_options();
  std::erase_if(out, [&, sought = lower_case(text)](const DeclaredOption& option) {
    return lower_case(option.full_name() + " " + option.field.meaning).find(sought) ==
           std::string::npos;
  });
  return out;
}

std::string to_text(const Topic& topic) {
  std::string out = wrapped_lines(topic.name + ": " + topic.summary, width) + "\n";
  if (!topic.options.empty()) out.append("\n").append(to_text(topic.options, width));
  size_t column = 0;
  for (const auto& [name, summary] : topic.topics) column = std::max(column, name.size() + 4);
  if (!topic.topics.empty()) out += "\n";
  for (const auto& [name, summary] : topic.topics) out += beside("  " + name, summary, column);
  return out;
}

namespace {

/// Returns whether the default is a phrase, such as "2 d_model".
bool is_computed(const Field& field) {
  try {
    parse_toml("default = " + field.default_value, "");
    return false;
  } catch (const ConfigError&) {
    return true;
  }
}

/// Returns whether two options are the same one, declared by several tasks or variants.
bool are_same(const DeclaredOption& a, const DeclaredOption& b) {
  return a.name() == b.name() && a.field.meaning == b.field.meaning &&
         a.field.values == b.field.values && a.field.default_value == b.field.default_value &&
         a.field.condition == b.field.condition;
}

/// Returns how to set an option to its default on the command line and in a file.
std::string how_to_set(const DeclaredOption& option) {
  const Field& field = option.field;
  const std::string section = option.section();
  const bool has_value = !is_computed(field) && field.default_value != "\"\"";
  const std::string value = has_value ? field.default_value : "VALUE";
  std::string word = value;
  std::erase(word, '"');
  return concat_message("--set ", section, ".", field.name, "=", word, ", or ", field.name, " = ",
                        value, " in [", section, "]");
}

}  // namespace

std::string to_text(const std::vector<DeclaredOption>& options) {
  constexpr size_t column = 12;
  struct Shown {
    DeclaredOption option;
    std::string owners{};  // the tasks or variants that declare it
  };
  std::vector<Shown> all;
  std::map<std::string, int> forms;  // number of different options with the same name
  for (const DeclaredOption& option : options) {
    auto shown =
        std::ranges::find_if(all, [&](const Shown& s) { return are_same(s.option, option); });
    if (shown == all.end()) {
      shown = all.insert(all.end(), {option});
      ++forms[option.name()];
    }
    if (!is_section(option.topic))
      shown->owners += (shown->owners.empty() ? "" : ", ") + option.owner();
  }
  std::string out;
  for (const auto& [option, owners] : all) {
    const Field& field = option.field;
    const auto line = [&](const char* name, const std::string& text) {
      out += beside(concat_message("  ", name), text, column);
    };
    out += out.empty() ? "" : "\n";
    const bool differs = forms[option.name()] > 1 && !owners.empty();
    const std::string title =
        differs ? concat_message(option.name(), " of ", owners) : option.name();
    out += beside("", title, column).substr(column);  // only further lines are indented
    line("meaning", field.meaning);
    line("values", accepted_values(field));
    line("default", field.default_value);
    if (!field.condition.empty()) line("only with", field.condition);
    if (!owners.empty()) line(option.section() == "data" ? "tasks" : "variants", owners);
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
  for (const Topic& page : topics()) {
    const bool section = is_section(page.name);
    out += concat_message("\n", section ? "## [" : "### ", page.name, section ? "]" : "", "\n\n",
                          static_cast<char>(std::toupper(page.summary.front())),
                          page.summary.substr(1), ".\n\n");
    const std::string text = to_markdown(page);
    out += text.empty() ? "It has no options of its own.\n" : text;
  }
  return out;
}

namespace {

/// Returns the options of a section that `values` may hold, including its task's or variants'.
Schema options_of(const Topic& section, const EffectiveValues& values) {
  Schema schema = section.options;
  const auto selected = values.find(section.name == "data" ? "task" : "type");
  if (section.topics.empty() || selected == values.end()) return schema;
  std::vector<std::string> words;
  if (const auto* const list = std::get_if<std::vector<std::string>>(&selected->second.value))
    words = *list;
  else
    words = {std::get<std::string>(selected->second.value)};
  for (const std::string& word : words)
    for (const Field& field : topic(section.name + "." + word).options)
      if (std::ranges::find(schema, field.name, &Field::name) == schema.end())
        schema.push_back(field);
  return schema;
}

}  // namespace

std::string commented_toml(const std::string& effective, const Config* given) {
  const Config all = Config::parse(effective, "configuration");
  std::string out;
  for (const Topic& section : topics()) {
    if (!is_section(section.name)) break;
    const Options& options = all.section(section.name);
    EffectiveValues values;
    for (const std::string& key : options.keys())
      values[key] = {options.find(key)->value, !given || given->section(section.name).has(key)};
    out += concat_message(out.empty() ? "" : "\n", "# ---- ", section.summary, "\n[", section.name,
                          "]\n");
    std::set<std::string> written;
    for (const Field& field : options_of(section, values)) {
      std::string text;
      // The option, and its forms for single layers, "1.window".
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
      const std::string about =
          concat_message(field.meaning, field.condition.empty() ? "" : "; with ", field.condition,
                         " (", accepted_values(field), "; default ", field.default_value, ")");
      out += "\n";
      for (const std::string& line : wrapped(about, 98)) out += "# " + line + "\n";
      out += text;
    }
    for (const auto& [key, value] : values)
      if (!written.contains(key)) out += concat_message(key, " = ", to_string(value.value), "\n");
  }
  return out;
}

}  // namespace longhand::train

// What may complete a word of a command line.
#include <algorithm>

#include "longhand/attention/registry.h"
#include "longhand/data/dataset.h"
#include "longhand/train/cli/help/page.h"
#include "longhand/train/config/reference.h"

namespace longhand::cli {
namespace {

using Candidates = std::vector<std::pair<std::string, std::string>>;

/// Words, each with `before` in front of it.
Candidates without_texts(const std::vector<std::string>& words, const std::string& before = "") {
  Candidates out;
  for (const std::string& word : words) out.emplace_back(before + word, "");
  return out;
}

/// Words of --set: "attention." and the other sections, then "attention.type=", then its values.
Candidates assignments(const std::string& word, const std::string& prefix) {
  Candidates out;
  const size_t equals = word.find('=');
  const auto add = [&](const std::string& text, const std::string& meaning) {
    const bool is_new =
        std::ranges::none_of(out, [&](const auto& each) { return each.first == text; });
    if (text.starts_with(prefix) && is_new) out.emplace_back(text, meaning);
  };
  for (const train::DeclaredOption& option : train::declared_options()) {
    const std::string name = option.name();
    if (equals != std::string::npos) {
      if (name != word.substr(0, equals)) continue;
      for (const std::string& value : train::choices(option.field)) add(name + "=" + value, "");
    } else if (word.find('.') != std::string::npos) {
      add(name + "=", option.field.meaning);
    } else {
      const std::string section = name.substr(0, name.find('.'));
      add(section + ".", train::topic(section).summary);
    }
  }
  return out;
}

/// The values of an argument, of which `word` is the beginning. The name of the value says what it is.
Candidates values_of(const ArgumentPage& argument, const std::string& word) {
  const std::string& value = argument.value;
  const auto is = [&](const char* name) { return argument.name() == name; };
  if (value.find("KEY=VALUE") != std::string::npos)
    return assignments(word, value.starts_with("data.") ? "data." : "");
  if (value.starts_with("DIR")) return {{":directories", ""}};
  for (const char* const file : {"FILE", "CONFIG", "SWEEP", "PATH"})
    if (value.starts_with(file)) return {{":files", ""}};
  if (value == "SPLIT") return without_texts({"train", "validation", "test"});
  if (value == "FORMAT") return without_texts({"md", "csv", "tex", "text"});
  if (value == "L|M") return without_texts({"L", "M"});
  if (value == "SHELL") return without_texts({"bash", "zsh", "fish"});
  if (value == "VARIANT" || is("--variant")) return without_texts(attention::names());
  // A list separated by commas.
  if (is("--attention"))
    return without_texts(attention::names(), word.substr(0, word.rfind(',') + 1));
  if (is("--checkpoint")) return without_texts({"best", "last"});
  Candidates out;
  if (value == "TASK")
    for (const std::string& name : data::task_names())
      out.emplace_back(name, data::task_summary(name));
  if (value == "TOPIC") {
    for (const std::string& name : train::topic_names())
      out.emplace_back(name, train::topic(name).summary);
    for (const train::DeclaredOption& option : train::declared_options())
      if (word.find('.') != std::string::npos)
        out.emplace_back(option.full_name(), option.field.meaning);
  }
  return out;
}

}  // namespace

Candidates completions(const CommandPage& program, const std::vector<std::string>& words) {
  if (words.empty()) return {};
  const CommandPage* at = &program;
  const ArgumentPage* flag = nullptr;  // whose value comes next
  bool sets = false;                   // whether --set was given
  size_t positionals = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (flag) {
      flag = nullptr;
    } else if (is_flag(word)) {
      flag = at->flag(word);
      sets = sets || word.starts_with("--set");
      if (flag && flag->value.empty()) flag = nullptr;
    } else if (const CommandPage* const command = at->command(word)) {
      at = command;
    } else {
      ++positionals;
    }
  }
  const std::string& word = words.back();
  Candidates all;
  if (flag) {
    all = values_of(*flag, word);
  } else if (const size_t equals = word.find('=');
             word.starts_with("--") && equals != std::string::npos) {
    if (const ArgumentPage* const of = at->flag(word.substr(0, equals)))
      for (const auto& [value, text] : values_of(*of, word.substr(equals + 1)))
        if (!value.starts_with(':')) all.emplace_back(word.substr(0, equals + 1) + value, text);
  } else if (word.starts_with('-')) {
    for (const ArgumentPage& each : at->arguments)
      if (!each.positional) all.emplace_back(each.name(), each.text);
  } else {
    for (const CommandPage& each : at->commands) all.emplace_back(each.word(), each.text);
    const ArgumentPage* positional = nullptr;
    size_t index = 0;
    for (const ArgumentPage& each : at->arguments) {
      if (!each.positional) continue;
      if (index == positionals || (index < positionals && each.repeated)) positional = &each;
      ++index;
    }
    if (positional) all = values_of(*positional, word);
    const ArgumentPage* const set = at->flag("--set");
    if (set && sets) {
      const Candidates more = values_of(*set, word);
      all.insert(all.end(), more.begin(), more.end());
    }
  }
  Candidates out;
  for (auto& each : all)
    if (each.first.starts_with(':') || each.first.starts_with(word)) out.push_back(std::move(each));
  return out;
}

}  // namespace longhand::cli
